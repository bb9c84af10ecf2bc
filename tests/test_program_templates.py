"""Our templates as branches of a program's sketches."""

import random
from dataclasses import replace
from math import prod

import numpy as np
import pytest
import tvm
from conftest import TESTS
from test_cuda import emulated

from nni_tensor_tuners import SearchSpace
from nni_tensor_tuners.measure import ErrorCode, measure
from nni_tensor_tuners.tasks.device import GENERIC, find_device
from nni_tensor_tuners.tasks.matmul import LAYOUTS, BatchMatmul, Matmul, dot
from nni_tensor_tuners.tasks.matmul.recognise import recognise
from nni_tensor_tuners.tasks.program import Program, sketches, templates
from nni_tensor_tuners.tasks.target import device_of, target_of

OPS = TESTS / "my_ops.py"
CPU = find_device("cpu")
CUDA = GENERIC["cuda"]
FLOATS = ("float32",) * 3


def recognised(function):
    return recognise(tvm.IRModule({"main": function}))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_matrix_product_is_recognised_in_every_layout(layout):
    for task in (
        Matmul(8, 8, 8, layout),
        Matmul(6, 10, 4, layout),
        BatchMatmul(6, 10, 4, layout, 3),
        BatchMatmul(4, 4, 4, layout, 4),
    ):
        assert recognised(task.prim_func()) == (task, "Z", FLOATS)


def test_a_product_is_recognised_with_the_stages_after_it():
    assert recognise(Program(f"{OPS}:dense").source) == (Matmul(24, 32, 40, "NT"), "dense", FLOATS)
    assert recognise(Program("gmm(batch=2)").source) == (BatchMatmul(128, 128, 128, "NN", 2), "matmul", FLOATS)


@pytest.mark.parametrize(
    "program",
    [
        "matmul(n=8, k=8, m=8, dtype='int8')",
        "matmul(n=8, k=8, m=8, dtype='float16')",
        f"{OPS}:square",  # both operands are one buffer
        f"{OPS}:scaled",
        "c1d",
        "nrm",
        "softmax",
        "tbs",  # the operands are computed, transposed
        "layer_norm",
    ],
)
def test_what_is_no_product_of_ours_has_no_template(program):
    source = Program(program).source
    assert templates.of_program(source, CPU, "") == templates.of_program(source, CUDA, "") == []
    assert "dtype" in program or recognise(source) is None


class Templates(Program):
    """A program whose sketches are our templates alone, for TVM takes its time to make its own."""

    operator = "test_program_templates:Templates"

    def sketches(self, device):
        return templates.of_program(self.source, device, "sketch.")


def space_of(task, device):
    made = task.sketches(device)
    return SearchSpace.from_json(sketches.search_space(made), sketches.constraints(made))


def test_the_template_has_its_own_parameters_and_constraints():
    space, alone = space_of(Templates(f"{OPS}:dense"), CPU), Matmul(24, 32, 40, "NT")
    theirs = SearchSpace.from_json(alone.search_space(CPU), alone.constraints(CPU))
    inside = [
        {key: value for key, value in space.config(point)["sketch"].items() if key != "_name"}
        for point in space.points(random.Random(0))
    ]
    expected = [theirs.config(point) for point in theirs.points(random.Random(0))]
    assert sorted(map(str, inside)) == sorted(map(str, expected))


@pytest.mark.parametrize("program", [f"{OPS}:product", f"{OPS}:dense", f"{OPS}:gated", "gmm(n=16, k=12, m=20, batch=3)"])
def test_a_template_s_kernels_give_the_program_s_answer_on_a_cpu(program, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    task = Templates(program)
    space, rng = space_of(task, CPU), random.Random(0)
    for _ in range(3):
        record = measure(task, space.sample(rng), CPU)
        assert record["error_code"] == ErrorCode.NO_ERROR, record["error"]


BYTES = [
    "left='int8'",
    "left='uint8'",
    "left='int8', transposed=True",
    "left='uint8', batch=(3,), scaled=True",
    "left='int8', n=1, k=4, m=16",
    "left='int8', n=7, k=52, m=112, scaled=True",
]


def with_dot_products(monkeypatch, processor="cascadelake"):
    """The target of a processor that has the instructions, whatever this one has; and a device of its vectors."""
    target = tvm.target.Target({"kind": "llvm", "mcpu": processor, "num-cores": 2})
    monkeypatch.setattr(templates, "target_of", lambda device: target)
    return target, replace(CPU, vector_lanes=16, vector_registers=32)


@pytest.mark.parametrize("arguments", BYTES)
def test_products_of_bytes_are_made_by_dot_product_instructions(arguments, monkeypatch):
    target, device = with_dot_products(monkeypatch)
    task = Templates(f"{OPS}:of_bytes({arguments})")
    (sketch,) = task.sketches(device)
    space = space_of(task, device)
    shapes = [(tuple(map(int, buffer.shape)), str(buffer.dtype)) for buffer in task.source["main"].params]
    rng = np.random.default_rng(0)
    extremes = [
        rng.choice([np.iinfo(dtype).min, np.iinfo(dtype).max, 1, 0], shape).astype(dtype) for shape, dtype in shapes[:2]
    ]
    x, y = (each.astype("int64") for each in extremes)
    expected = x @ (np.swapaxes(y, -1, -2) if "transposed" in arguments else y)
    draw = random.Random(0)
    for config in ({"sketch": {"_name": sketch["name"], **sketch["sound"]}}, *(space.sample(draw) for _ in range(3))):
        assert space.contains(config)
        built = tvm.compile(templates.schedule(task.source, sketch, config["sketch"], device).mod, target)
        assembly = built.mod.inspect_source("asm")
        assert "vpdpbusd" in assembly and "vpmulld" not in assembly
        if dot.fits(("int8", "int8", "int32"), 4, 16, "NN", target_of(CPU)):
            out = tvm.runtime.tensor(np.zeros(*shapes[2]))
            built["main"](*map(tvm.runtime.tensor, extremes), out)
            np.testing.assert_array_equal(out.numpy(), expected * (0.5 if "scaled" in arguments else 1))


def test_tvm_s_own_instructions_for_bytes_which_do_not_compile_are_not_asked_for(monkeypatch):
    target, device = with_dot_products(monkeypatch)
    monkeypatch.setattr(sketches, "target_of", lambda device: target)
    *of_tvm, ours = sketches.generate(Program(f"{OPS}:of_bytes(left='uint8')").source, device)
    assert len(of_tvm) == 3 and ours["of_bytes"] == "uint8"
    assert not any(sketches.TENSORIZES in str(sketch["trace"]) for sketch in of_tvm)


@pytest.mark.parametrize(
    "arguments, processor",
    [
        ("k=34", "cascadelake"),
        ("m=40", "cascadelake"),
        ("left='float32'", "cascadelake"),
        ("", "skylake-avx512"),
        ("", "haswell"),
    ],
)
def test_other_products_of_bytes_are_left_to_tvm_s_sketches(arguments, processor, monkeypatch):
    _, device = with_dot_products(monkeypatch, processor)
    assert Templates(f"{OPS}:of_bytes({arguments})").sketches(device) == []


@pytest.mark.parametrize(
    "device", [CPU, GENERIC["cpu"], replace(GENERIC["cpu"], vector_lanes=16, vector_registers=32, cores=16)]
)
@pytest.mark.parametrize(
    "task",
    [
        Matmul(512, 1024, 1024),
        Matmul(49, 512, 2048, "NT"),
        Matmul(1, 1000, 1000),
        Matmul(7, 5, 3),
        Matmul(200, 1200, 480),
        Matmul(64, 64, 256),
        Matmul(97, 101, 103, "TN"),
        BatchMatmul(128, 128, 128, b=1),
        BatchMatmul(16, 64, 100, b=12),
    ],
    ids=str,
)
def test_what_a_template_knows_to_be_sound_is_in_its_space(task, device):
    space = SearchSpace.from_json(task.search_space(device), task.constraints(device))
    config = task.sound(device)
    assert space.contains(config)
    blocks = prod(config.get(name, [1])[0] for name in "BXY")
    tiles = task.n // config["X"][3] * (task.m // config["Y"][3]) * getattr(task, "b", 1)
    assert blocks >= min(device.cores, tiles)


@pytest.mark.parametrize("program", [f"{OPS}:dense", "gmm(batch=2)"])
def test_a_search_begins_with_it_too(program):
    task = Program(program)
    by_sketches, by_template = task.first(CPU)
    assert by_template["sketch"]["_name"].startswith("template of") and not by_sketches["sketch"]["_name"].startswith(
        "template of"
    )
    assert task.settler(CPU)(by_template) == by_template
    assert measure(task, by_template, CPU)["error_code"] == ErrorCode.NO_ERROR
    assert task.defaults(CPU) == [task.settler(CPU)(by_sketches), by_template]


@pytest.mark.parametrize("program", [f"{OPS}:dense", f"{OPS}:gated"])
def test_a_template_s_kernels_give_the_program_s_answer_on_cuda(program, tmp_path):
    task, rng = Templates(program), random.Random(0)
    space = space_of(task, CUDA)
    assert emulated([(task, space.sample(rng)) for _ in range(4)], tmp_path) == [None] * 4


def test_a_gpu_s_limits_are_known_from_its_target():
    assert device_of(target_of(device_of(target_of(CUDA)))) == device_of(target_of(CUDA))
    found = device_of(tvm.target.Target({"kind": "cuda", "arch": "sm_90"}))
    assert (found.kind, found.arch, found.shared_bytes_optin) == ("cuda", "sm_90", 227 * 1024)
    assert device_of(target_of(CPU)) == CPU


def test_the_dense_layer_s_reference_is_numpy_s():
    x, w, b = Program(f"{OPS}:dense").inputs()
    np.testing.assert_allclose(Program(f"{OPS}:dense").reference(x, w, b), np.maximum(x @ w.T + b, 0), rtol=1e-4, atol=1e-4)
