"""Any tensor program as a task: reading it, TVM's sketches as its search space, what is measured of it."""

import json
import os
import random
import re
import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest
import tvm
import tvm_ffi
import yaml
from conftest import TESTS
from cuda_emulator import kernels_in
from test_cuda import emulated, instantiated, source_of

from nni_tensor_tuners import SearchSpace, export
from nni_tensor_tuners.cli import main
from nni_tensor_tuners.measure import ErrorCode, measure
from nni_tensor_tuners.study import records
from nni_tensor_tuners.tasks import from_dict
from nni_tensor_tuners.tasks.device import GENERIC, find_device
from nni_tensor_tuners.tasks.features import code_size, loops_of, scalar_accesses, vector
from nni_tensor_tuners.tasks.program import DLIGHT, Program, ProgramTask, parse, sketches
from nni_tensor_tuners.tasks.program.load import load
from nni_tensor_tuners.tasks.program.traces import plain
from nni_tensor_tuners.tasks.target import target_of

OPS = TESTS / "my_ops.py"
CPU = find_device("cpu")


@pytest.fixture(scope="module")
def product():
    return Program(f"{OPS}:product(n=24, k=32, m=40)")


@pytest.fixture(scope="module")
def softmax():
    return Program("softmax(n=24, m=32)")


def space_of(task, device=CPU):
    return SearchSpace.from_json(task.search_space(device), task.constraints(device))


# Reading.


@pytest.mark.parametrize("name", ["product", "scaled", "scaled_module", "product(n=24, k=32, m=40)"])
def test_a_program_is_a_function_of_te_a_prim_func_or_a_module(name):
    task = Program(f"{OPS}:{name}")
    inputs = task.inputs()
    expected = 2 * inputs[0] if name.startswith("scaled") else inputs[0] @ inputs[1]
    np.testing.assert_allclose(task.reference(*inputs), expected, rtol=1e-4, atol=1e-5)
    assert len(task.buffers) == len(task.shapes) == len(task.dtypes) == len(inputs) + 1


def test_a_saved_module_is_the_program_it_was_saved_from(tmp_path, product):
    copy = product.copied_to(tmp_path / "saved.json")
    assert copy.id == product.id and copy.shapes == product.shapes
    assert from_dict(json.loads(json.dumps(copy.to_dict()))) == copy
    (tmp_path / "saved.json").write_text((tmp_path / "saved.json").read_text() + "\n")
    with pytest.raises(ValueError, match="has changed: its sha256 is"):
        from_dict(copy.to_dict())


def test_what_names_a_program():
    assert parse("a/b.py:f(n=3)") == ("a/b.py", "f", "(n=3)")
    assert parse("package.module:f") == ("package.module", "f", "()")
    assert parse("c1d(batch=16)")[1:] == ("c1d", "(batch=16)")
    assert parse("experiments/mm1/opevo.yml") is parse("nothing") is None


@pytest.mark.parametrize(
    "source, message",
    [
        (f"{OPS}:nothing", "there is no nothing in"),
        ("no_such_file.py:f", "there is no file no_such_file.py"),
        ("no_such_file.json", "cannot read no_such_file.json"),
        ("no_such_module:f", "ModuleNotFoundError"),
        (f"{OPS}:product(24)", "expected arguments such as"),
        (f"{OPS}:product(q=24)", "it raised TypeError"),
        (f"{OPS}:number", "expected a PrimFunc, an IRModule of one, or TE tensors, got int"),
        (f"{OPS}:dynamic", "has a dynamic shape"),
        (f"{OPS}:square(n=0)", "is empty, its shape is [0, 0]"),
        (f"{OPS}:complex_numbers", "allowed: float16"),
        (f"{OPS}:two_outputs", "it must write its last parameter alone, it writes"),
        ("c2d(stride=0)", "stride"),
    ],
)
def test_what_is_no_program_is_one_clear_line(source, message):
    with pytest.raises(ValueError) as error:
        Program(source)
    assert message in str(error.value) and "\n" not in str(error.value)


# The search space.


def test_a_product_has_a_sketch_for_each_place_of_its_cached_write(product):
    (choice,) = product.search_space(CPU).values()
    names = [branch["_name"] for branch in choice["_value"]]
    assert names[:-1] == ["tile product, write product at j_1", "tile product, write product at j_0", "tile product"]
    for branch in choice["_value"][:-1]:
        assert branch["product_i"] == {"_type": "factor", "_value": [24, 4]}
        assert branch["product_j"] == {"_type": "factor", "_value": [40, 4]}
        assert branch["product_k"] == {"_type": "factor", "_value": [32, 2]}
        assert branch["unroll"]["_type"] == "discrete"
    bounds = [f"sketch.matmul_{loop}[-1] <= 64" for loop in "ijk"]
    assert Program("gmm").constraints(CPU)[:3] == bounds
    assert "product_" not in str(product.constraints(CPU))  # no extent is above the bound of an innermost factor


def test_the_decisions_of_a_schedule_are_those_of_its_configuration(product, softmax):
    """TVM replaces a decision that is not legal by another one without a word."""
    rng, refused = random.Random(0), 0
    for task in (product, softmax):
        made = [sketch for sketch in task.sketches(CPU) if "trace" in sketch]
        space = SearchSpace.from_json(sketches.search_space(made), sketches.constraints(made))
        for _ in range(40):
            config = space.sample(rng)
            schedule, taken = sketches.schedule(task.source, made, config, target_of(CPU))
            if taken != config:
                refused += 1
                with pytest.raises(ValueError, match=r"TVM takes other decisions than these: \w+_at -?\d instead of -?\d"):
                    task.module(config, CPU)
                assert sketches.schedule(task.source, made, taken, target_of(CPU))[1] == taken
            config, trace = taken, schedule.trace
            (sketch,) = [each for each in made if each["name"] == config["sketch"]["_name"]]
            for name, parameter in sketch["parameters"].items():
                instruction = trace.insts[parameter["instruction"]]
                taken = plain(trace.get_decision(instruction))
                assert taken == sketches.decision_of(sketch["trace"][0][parameter["instruction"]], config["sketch"][name])
    assert 0 < refused < 40


def test_sketches_are_the_same_in_every_process(product, tmp_path):
    """Also where none are kept from another one."""
    code = (
        "import json, sys; from nni_tensor_tuners.tasks.program import Program; from nni_tensor_tuners.tasks.device import find_device\n"
        "print(json.dumps(Program(sys.argv[1]).search_space(find_device('cpu'))))"
    )
    source = f"{OPS}:product(n=24, k=32, m=40)"
    for environment in ({}, {"TMPDIR": str(tmp_path)}):
        asked = subprocess.run(
            [sys.executable, "-c", code, source], env={**os.environ, **environment}, capture_output=True, text=True, check=True
        )
        assert json.loads(asked.stdout) == product.search_space(CPU)


def test_every_sketch_of_a_softmax_gives_the_unscheduled_program_s_answer(softmax):
    space, rng, sketched = space_of(softmax), random.Random(1), set()
    while len(sketched) < 9:
        config = space.sample(rng)
        config = sketches.schedule(softmax.source, softmax.sketches(CPU), config, target_of(CPU))[1]
        if config["sketch"]["_name"] not in sketched:
            sketched.add(config["sketch"]["_name"])
            if len(sketched) % 3 == 0:
                record = measure(softmax, config, CPU)
                assert record["error_code"] == ErrorCode.NO_ERROR, record["error"]
    x = softmax.inputs()[0]
    exp = np.exp(x - x.max(axis=1, keepdims=True))
    np.testing.assert_allclose(softmax.reference(x), exp / exp.sum(axis=1, keepdims=True), rtol=1e-5)


def test_sketches_on_cuda(monkeypatch):
    """Of attention, where TVM's own order of its rules raises an IndexError; and of float16, which takes tensor cores."""
    of_schedules = sketches.of_schedules
    monkeypatch.setattr(sketches, "of_schedules", lambda module, schedules, device: schedules)  # naming them takes a minute
    made = sketches.generate(Program("tbs(length=16, heads=2, dim=16)").source, GENERIC["cuda"])
    assert len(made) == 12 and all("tiling_structure" in str(each.trace) for each in made)
    monkeypatch.setattr(sketches, "of_schedules", of_schedules)
    made = sketches.generate(Program("matmul(n=64, k=64, m=64, dtype='float16')").source, GENERIC["cuda"])
    assert made and all("wmma_sync_16x16x16_f16f16f16" in sketch["name"] for sketch in made)


def test_tensor_instructions_of_a_gpu_are_read_only_where_they_may_be_of_use():
    """And `inspect.stack`, which has no sources to show meanwhile, is Python's own again."""
    code = """
import inspect, sys
from nni_tensor_tuners.tasks.device import GENERIC
from nni_tensor_tuners.tasks.program import Program, sketches
stack = inspect.stack
for text in sys.argv[1:]:
    made = sketches.generate(Program(text).source, GENERIC["cuda"])
    print(any("wmma" in each["name"] for each in made), "tvm.s_tir.tensor_intrin.cuda" in sys.modules, inspect.stack is stack)
"""
    programs = ["matmul(n=32, k=32, m=32)", "matmul(n=32, k=32, m=32, dtype='float16')"]
    ended = subprocess.run([sys.executable, "-c", code, *programs], capture_output=True, text=True, check=True)
    assert ended.stdout.split("\n")[:2] == ["False False True", "True True True"]


@pytest.mark.parametrize(
    "program",
    [
        "matmul(n=32, k=64, m=64)",
        "matmul(n=64, k=64, m=64, dtype='float16')",
        "matmul(n=64, k=64, m=64, dtype='float16', out_dtype='float32')",
        "conv_bias_relu(height=6, width=6, in_channels=16, out_channels=16)",
        "dep(height=6, width=6, channels=8)",
        "softmax(n=16, m=64)",
        "layer_norm(n=8, m=64)",
    ],
)
def test_sketches_kernels_give_the_program_s_answer_on_cuda(program, tmp_path):
    """A kernel of each sketch that makes one, in the emulator: stages, vectors, reductions over threads, tensor cores."""
    task, rng = Program(program), random.Random(0)
    settle = task.settler(GENERIC["cuda"])
    space = SearchSpace.from_json(task.search_space(GENERIC["cuda"]), task.constraints(GENERIC["cuda"]))
    chosen = {}
    for config in filter(None, (settle(space.sample(rng)) for _ in range(400))):
        chosen.setdefault(config["sketch"]["_name"], config)
    assert chosen.keys() == {sketch["name"] for sketch in task.sketches(GENERIC["cuda"])}
    cases = [(task, config) for config in chosen.values() if kernels_in(source_of(instantiated(task, config))) == 1]
    assert cases and emulated(cases, tmp_path) == [None] * len(cases)


def test_of_configurations_with_the_same_kernel_the_first_one_stands_for_all(softmax):
    settle, space, rng = softmax.settler(CPU), space_of(softmax), random.Random(0)
    settled = [settle(space.sample(rng)) for _ in range(150)]
    kernels = {}
    for config in settled:
        kernels.setdefault(json.dumps(config), softmax.module(config, CPU))
    distinct = list(kernels.values())
    assert len(distinct) < len(settled)
    assert not any(tvm_ffi.structural_equal(a, b) for i, a in enumerate(distinct) for b in distinct[:i])


@pytest.mark.parametrize(
    "program", ["tbs(length=32)", "dep(height=14, width=14)", "conv_layer(height=28, width=28)", "softmax(n=24, m=32)"]
)
def test_what_is_built_is_found_without_trying_every_location(program):
    """The same module and the same decisions as by TVM's replay, most of which move a block; a model sees these, too."""
    task, rng = Program(program), random.Random(0)
    describe, settle, space, moved = task.describer(CPU, "relation"), task.settler(CPU), space_of(task), 0
    for config in (space.sample(rng) for _ in range(25)):
        both = [sketches.schedule(task.source, task.sketches(CPU), config, target_of(CPU), quick) for quick in (False, True)]
        (made, taken), (quickly, the_same) = both
        assert taken == the_same and tvm_ffi.structural_equal(made.mod, quickly.mod)
        moved += taken != config
        if settle(config) is not None:
            np.testing.assert_array_equal(describe(config), vector("relation", task.module(taken, CPU), target_of(CPU)))
    assert moved > 5


def test_dlight_s_schedule_is_described_as_any_other(softmax):
    gpu = GENERIC["cuda"]
    default = softmax.default(gpu)
    expected = vector("relation", softmax.module(default, gpu), target_of(gpu))
    np.testing.assert_array_equal(softmax.describer(gpu, "relation")(default), expected)


def test_dlight_s_schedule_takes_part_in_the_end_but_is_added_to_no_database(softmax, monkeypatch, tmp_path):
    monkeypatch.setattr(export, "find_again", lambda place: GENERIC["cuda"])
    monkeypatch.setattr(export, "from_dict", lambda workload: softmax)
    config = softmax.settler(GENERIC["cuda"])(space_of(softmax, GENERIC["cuda"]).sample(random.Random(0)))
    sketched = {"config": config, "workload": {}, "device": {}}
    default = export.untuned([sketched])
    assert default == {**sketched, "config": DLIGHT}
    assert export.write_database([{**default, "retimed_ms": 1.0}, {**sketched, "retimed_ms": 2.0}], tmp_path) == 1


@pytest.mark.parametrize(
    "text, measured, most",
    [("tbs()", code_size, sketches.MOST_INSTRUCTIONS), ("layer_norm(n=64, m=512)", scalar_accesses, sketches.MOST_ACCESSES)],
)
def test_code_that_takes_long_to_compile_is_refused(text, measured, most):
    task, rng = Program(text), random.Random(0)
    settle, space = task.settler(CPU), space_of(task)
    longer, refused = 0, 0
    for config in (space.sample(rng) for _ in range(60)):
        made, taken = sketches.schedule(task.source, task.sketches(CPU), config, target_of(CPU))
        if space.contains(taken):
            longer += measured(loops_of(made.mod)) > most
            refused += settle(config) is None
    assert 0 < longer == refused < 50


# Measuring.


@pytest.mark.parametrize("dtype, out", [("float16", "float16"), ("int8", "int32"), ("bfloat16", "float32")])
def test_short_types_are_filled_checked_and_timed(dtype, out):
    task = Program(f"matmul(n=32, k=64, m=32, dtype='{dtype}', out_dtype='{out}')")
    left, right = task.inputs()
    assert str(left.dtype) == dtype and task.dtypes == [dtype, dtype, out]
    expected = left.astype(np.float64) @ right.astype(np.float64)
    error = np.abs(task.reference(left, right).astype(np.float64) - expected).max()
    assert error <= task.tolerance * np.abs(expected).max()
    assert task.tolerance == 0 if out == "int32" else task.tolerance > 0
    record = measure(task, space_of(task).sample(random.Random(0)), CPU)
    assert record["error_code"] == ErrorCode.NO_ERROR and record["tflops"] > 0, record["error"]


@dataclass(frozen=True)
class Planted(ProgramTask):
    """Its schedules compute another program than it says."""

    operator = "test_program:Planted"

    def prim_func(self):
        return load(f"{OPS}:scaled")

    def module(self, config, device):
        return Program(f"{OPS}:scaled_by_three").source


def test_a_schedule_that_computes_something_else_is_a_wrong_answer(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    record = measure(Planted(), {}, CPU)
    assert record["error_code"] == ErrorCode.WRONG_ANSWER
    assert "elements differ from the reference" in record["error"]


# From the command line.


def test_tuning_a_program_without_nni(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    command = ["tune", f"{OPS}:product(n=24, k=32, m=40)", "--local", "--search", "Bansor", "--trials", "4", "--output", "out"]
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert "4 trials (4 no_error)" in printed and re.search(r"best, timed again: .*, \d+\.\d\d x the default schedule's", printed)
    found = records.read(tmp_path / "out" / records.RECORDS)
    known = from_dict(found[0]["workload"]).first(CPU)
    assert [record["config"] for record in found[: len(known)]] == known  # what is known to be sound comes first
    assert len({record["config"]["sketch"]["_name"] for record in found[len(known) :]}) == 1  # a round is longer than this
    ran = subprocess.run([sys.executable, tmp_path / "out" / "run_kernel.py"], capture_output=True, text=True, check=False)
    assert ran.returncode == 0 and "largest difference from the unscheduled program" in ran.stdout, ran.stderr

    assert main(["export", "out", "--top", "4", "--rounds", "1", "--output", "again", "--database", "database"]) == 0
    timed = sum(not record["early_stopped"] for record in found)  # all but those far slower than the best before them
    assert f"added to database: {timed} schedules" in capsys.readouterr().out
    from tvm.s_tir import meta_schedule as ms

    task, best = from_dict(found[0]["workload"]), json.loads((tmp_path / "again" / "best.json").read_text())
    database = ms.database.JSONDatabase(work_dir=str(tmp_path / "database"))
    assert len(database.get_all_tuning_records()) == timed
    asked = tvm.IRModule(
        {"main": load(f"{OPS}:product(n=24, k=32, m=40)").with_attr("global_symbol", "main")}
    )  # as a user has it
    compiled = ms.tir_integration.compile_tir(database, asked, target_of(CPU))
    assert tvm_ffi.structural_equal(compiled.mod, task.module(best["config"], CPU))


def test_tuning_a_program_through_nni(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["space", "program", "softmax(n=24, m=32)", "--target", "cpu", "--output", "mine"]) == 0
    written = {os.path.basename(line) for line in capsys.readouterr().out.split()}
    assert {"search_space.json", "program.json", "bansor.yml", "walkgp.yml"} <= written
    content = yaml.safe_load((tmp_path / "mine" / "walkgp.yml").read_text())
    assert content["tuner"]["classArgs"]["task"]["operator"] == "program"
    assert main(["tune", "mine/walkgp.yml", "--trials", "4", "--output", "out"]) == 0
    assert "4 trials (4 no_error)" in capsys.readouterr().out  # of random configurations most are built as another one
