"""Schedules that are sound without measuring: legal, right, and with a register tile that fits."""

import json
from math import prod

import pytest
import tvm
from conftest import TESTS
from model_answers import MODELS, tasks_of
from tvm import te, topi

from nni_tensor_tuners import SearchSpace, create_search
from nni_tensor_tuners.measure import measure
from nni_tensor_tuners.study import Study
from nni_tensor_tuners.tasks.device import GENERIC, find_device
from nni_tensor_tuners.tasks.network import lower, models
from nni_tensor_tuners.tasks.program import Program, sketches
from nni_tensor_tuners.tasks.program.places import INLINED

OPS = TESTS / "my_ops.py"
CPU = find_device("cpu")
PROGRAMS = [
    "matmul(n=64, k=96, m=80)",
    "matmul(n=1, k=64, m=1000)",
    "matmul(n=7, k=5, m=3)",
    "conv_bias_relu(height=14, width=14, in_channels=16, out_channels=32)",
    "dep(height=14, width=14, channels=48)",
    "matmul(n=24, k=288, m=512)",
    "softmax(n=24, m=32)",
    "layer_norm(n=8, m=48)",
    f"{OPS}:packed_product(m=96)",
]


def space_of(task):
    return SearchSpace.from_json(task.search_space(CPU), task.constraints(CPU))


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_default_schedule_is_in_the_space_and_right(program):
    task = Program(program)
    for built in map(task.settler(CPU), task.first(CPU)):
        assert space_of(task).contains(built)
        assert measure(task, built, CPU)["error_code"] == 0
        assert measure(task, built, CPU, cold=True)["error_code"] == 0


@pytest.mark.parametrize("n, m", [(64, 64), (7, 512), (49, 96), (1, 4096), (512, 1024), (3, 5)])
def test_the_register_tile_fits_the_register_file(n, m):
    config, _ = Program(f"matmul(n={n}, k=64, m={m})").first(CPU)  # the other is our template's
    tiles = [value for value in config["sketch"].values() if isinstance(value, list) and len(value) == 4]
    results = prod(tile[2] * tile[3] for tile in tiles)
    assert results <= CPU.vector_lanes * CPU.vector_registers // 2
    if m % CPU.vector_lanes == 0:
        (last,) = (value for name, value in config["sketch"].items() if name.endswith("_j"))
        assert last[3] % CPU.vector_lanes == 0


def test_rows_of_a_small_image_share_the_weights_that_a_register_tile_reads():
    module = lower.lowered(models.read(f"{MODELS}:transposed(image=(4,4),outer=32)"), CPU)
    (task,) = (task for name, task in tasks_of(module, CPU).items() if "conv" in name)
    tiles = [value for value in task.default(CPU)["sketch"].values() if isinstance(value, list) and len(value) == 4]
    assert prod(tile[2] * tile[3] for tile in tiles) == CPU.vector_lanes * CPU.vector_registers // 2


@pytest.mark.parametrize("n, k, m", [(512, 1024, 1024), (24, 288, 512), (1, 1024, 1000), (300, 700, 1100)])
def test_where_rows_are_far_apart_and_many_a_sum_is_made_by_steps_for_results_that_a_cache_keeps(n, k, m):
    config, _ = Program(f"matmul(n={n}, k={k}, m={m})").first(CPU)
    tiles = {name: value for name, value in config["sketch"].items() if isinstance(value, list)}
    (steps,) = (tiles.pop(name) for name in list(tiles) if name.endswith("_k"))
    assert steps[1] == max(number for number in (1, 2, 3, 4) if k % number == 0)
    assert prod(tile[3] for tile in tiles.values()) <= CPU.vector_lanes * CPU.vector_registers // 2
    assert prod(tile[2] * tile[3] for tile in tiles.values()) * 4 <= 1 << 15


def test_a_sum_over_taps_alone_is_unrolled_whole_and_with_channels_the_last_tap():
    config, _ = Program("dep(height=28, width=28, channels=48)").first(CPU)
    sketch = config["sketch"]
    assert (sketch["conv_ry"], sketch["conv_rx"], sketch["unroll"]) == ([3, 1], [1, 3], 512)
    config, stored = Program("conv_bias_relu(height=14, width=14, in_channels=64, out_channels=32)").first(CPU)
    sketch = config["sketch"]
    assert (sketch["conv_ry"], sketch["conv_rx"], sketch["conv_rc"]) == ([3, 1], [1, 3], [64, 1])
    assert sketch["unroll"] < 512
    assert stored == {"sketch": {**sketch, "pad_at": -1}} and sketch["pad_at"] == -2  # which is faster is found by measuring


@pytest.mark.parametrize("reduction", ["max", "avg"])
def test_tvm_does_not_warn_of_rules_that_it_has_not(reduction, capfd):
    data = te.placeholder((1, 8, 8, 16), name="data")
    pooled = topi.nn.pool2d(data, (3, 3), (2, 2), (1, 1), (1, 1, 1, 1), reduction, layout="NHWC")
    module = tvm.IRModule({"main": te.create_prim_func([data, pooled])})
    assert "schedule_rule" in module.script()
    assert sketches.generate(module, CPU)
    assert "Unknown schedule rule" not in capfd.readouterr().err


@pytest.mark.parametrize("program, sums", [("softmax()", 2), ("layer_norm()", 2), ("nrm()", 1), ("tbs()", 2)])
def test_sums_of_what_lies_side_by_side_are_made_in_vectors(program, sums):
    task = Program(program)
    configuration = task.default(CPU)["sketch"]
    assert configuration["_name"].count("rfactor") == sums
    parts = [value for value in configuration.values() if isinstance(value, list) and len(value) == 2 and value[1] > 1]
    assert parts.count([prod(parts[0]) // CPU.vector_lanes, CPU.vector_lanes]) == sums
    result = measure(task, {"sketch": configuration}, CPU)
    assert result["error_code"] == 0, result["error"]


def test_sums_of_what_lies_apart_are_not():
    assert "rfactor" not in Program(f"{OPS}:column_sums").default(CPU)["sketch"]["_name"]


def test_what_is_costly_is_computed_once_and_not_inside_a_sum():
    task = Program("tbs(length=32, heads=2, dim=16)")
    configuration = task.default(CPU)["sketch"]
    assert "exp_at" in configuration and configuration["exp_at"] != INLINED
    assert configuration["query_t_at"] == INLINED  # moves its input


def test_a_study_begins_with_what_is_sound_and_goes_on_with_the_search():
    task = Program("matmul(n=24, k=32, m=40)")
    search = create_search("Random", space_of(task))
    study = Study(search, settle=task.settler(CPU), first=task.first(CPU))
    asked = study.ask(range(4))
    assert asked[0] == task.first(CPU)[0]
    assert len({json.dumps(config) for config in asked}) == 4
    # What is known already is not asked again.
    study = Study(create_search("Random", space_of(task)), settle=task.settler(CPU), first=task.first(CPU))
    study.warm_start([(task.first(CPU)[0], 1.0)])
    assert task.first(CPU)[0] not in study.ask(range(4))


def test_a_vector_does_not_reach_over_two_blocks_of_a_packed_operand():
    task = Program(f"{OPS}:packed_product(m=96)")
    assert "16 % sketch.product_j[-1] == 0" in task.constraints(CPU)
    assert not any(" % " in text for text in Program(f"{OPS}:product").constraints(CPU))
    space = space_of(task)
    (config,) = task.first(CPU)
    assert space.contains(config) and 16 % config["sketch"]["product_j"][-1] == 0
    wide = {"sketch": {**config["sketch"], "product_j": [3, 1, 1, 32]}}
    assert not space.contains(wide)


def test_there_is_none_on_a_gpu():
    assert Program(f"{OPS}:product").first(GENERIC["cuda"]) == []
