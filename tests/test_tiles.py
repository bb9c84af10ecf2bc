"""What a GPU's tile takes, by TVM's own account of kernels that it builds."""

import random
from dataclasses import replace

import pytest
from conftest import TESTS
from test_cuda import HOPPER

from nni_tensor_tuners import SearchSpace
from nni_tensor_tuners.tasks.cuda_limits import check_limits
from nni_tensor_tuners.tasks.program import Program, sketches
from nni_tensor_tuners.tasks.target import target_of

SMALL = {
    "matmul": "matmul(n=64, k=32, m=96)",
    "strided": "c1d(length=64, in_channels=16, out_channels=32)",
    "dilated": "dil(height=20, width=20, in_channels=8, out_channels=16)",
    "grouped": "grp(height=14, width=14, in_channels=16, out_channels=32)",
    "depthwise": "dep(height=20, width=20, channels=32)",
    "transposed": "t2d(height=4, width=4, in_channels=32, out_channels=16)",
    "attention": "tbs(length=32, heads=2, dim=16)",
    "two kernels": f"{TESTS / 'my_ops.py'}:two_products(n=256, k=64, m=256)",
}


def made(text):
    """TVM's sketches of a program, our template not among them; what they say of GPUs; a function that tries to build one."""
    task, target = Program(text), target_of(HOPPER)
    found = [each for each in task.sketches(HOPPER) if "task" not in each]

    def builds(config):
        try:
            schedule, _ = sketches.schedule(task.source, found, config, target, quick=True)
            check_limits(schedule.mod, HOPPER, target)
        except Exception:  # TVM's own kinds
            return False
        return True

    return found, builds


def space_of(found):
    return SearchSpace.from_json(sketches.search_space(found), sketches.constraints(found))


@pytest.mark.parametrize("operator", SMALL)
def test_no_configuration_that_builds_is_left_out(operator):
    found, builds = made(SMALL[operator])
    limited = space_of(found)
    free = space_of([{**each, "limits": []} for each in found])
    rng = random.Random(0)
    built = [config for config in (free.sample(rng) for _ in range(250)) if builds(config)]
    assert built and all(map(limited.contains, built))


@pytest.mark.parametrize("text", ["conv_bias_relu(batch=16)", "matmul(n=1024)", "tbs()", "dil()"])
def test_what_is_left_builds(text):
    """Of the workloads of papers, of which fewer than one in four do without the limits."""
    found, builds = made(text)
    limited, rng = space_of(found), random.Random(0)
    assert all(builds(limited.sample(rng)) for _ in range(20))
    free = space_of([{**each, "limits": []} for each in found])
    assert sum(builds(free.sample(rng)) for _ in range(40)) < 10


def test_a_tile_that_fills_shared_memory_is_legal_and_a_larger_one_is_not():
    found = [each for each in Program("matmul(n=1024)").sketches(HOPPER) if "task" not in each][:1]
    (sketch,) = found
    n, m, k = (next(name for name in sketch["parameters"] if name.endswith(axis)) for axis in ("_i", "_j", "_k"))
    rest = {name: each["spec"]["_value"][0] for name, each in sketch["parameters"].items() if name not in (n, m, k)}

    def legal(rows, steps):
        tiles = {n: [1024 // rows, 1, 8, 1, rows // 8], m: [16, 2, 16, 1, 2], k: [1024 // steps, steps, 1]}
        return space_of(found).contains({"sketch": {"_name": sketch["name"], **rest, **tiles}})

    # (rows + 64 columns) * steps * 4 bytes, of 49,152
    assert legal(128, 64) and not legal(256, 64) and legal(64, 64) and not legal(64, 128)


def test_devices_of_one_kind_have_the_same_sketches(monkeypatch, tmp_path):
    monkeypatch.setattr("nni_tensor_tuners.tasks.program.definition.shared_folder", lambda: tmp_path)
    task = Program("softmax(n=12, m=20)")
    made = task.sketches(HOPPER)
    monkeypatch.setattr(sketches, "generate", None)
    assert task.sketches(replace(HOPPER, name="the one beside it", identity="cuda-1")) == made
