"""CPU templates, compiled and run."""

import json
import random
import subprocess
import sys

import numpy as np
import pytest
import tvm
from conftest import TESTS
from hypothesis import given, settings
from hypothesis import strategies as st
from test_tasks import convolutions

from nni_tensor_tuners import SearchSpace
from nni_tensor_tuners.measure import build
from nni_tensor_tuners.measure.worker import wrong_answer
from nni_tensor_tuners.tasks import WORKLOADS
from nni_tensor_tuners.tasks.conv import Conv
from nni_tensor_tuners.tasks.device import GENERIC, Device, find_device
from nni_tensor_tuners.tasks.matmul import LAYOUTS, BatchMatmul, Matmul, cpu
from nni_tensor_tuners.tasks.target import target_of

DEVICES = [find_device("cpu"), GENERIC["cpu"], Device("cpu", "AVX", "cpu", cores=2, vector_lanes=8, vector_registers=16)]

# Too large to run whole in a test: two images instead of 512.
SMALLER = {"c1": ["--batch", "2"], "c2": ["--batch", "2"]}


def answer(workload, device, seed):
    """A random legal configuration, and what is wrong with its answer."""
    space = SearchSpace.from_json(workload.search_space(GENERIC["cpu"]), workload.constraints(device))
    config = space.sample(random.Random(seed))
    return config, fault(workload, config)


def fault(workload, config):
    """Compile and run a configuration; what is wrong with its answer, or None."""
    device = find_device("cpu")
    target = target_of(device)
    library = build.compile_module(build.instantiate(workload, config, device, target), target)
    inputs = workload.inputs()
    expected = workload.reference(*inputs)
    arguments = [tvm.runtime.tensor(array) for array in (*inputs, np.full_like(expected, np.nan))]
    library.mod["main"](*arguments)
    return wrong_answer(arguments[-1].numpy(), expected)


@st.composite
def matmuls(draw):
    extents = [draw(st.integers(1, 40)) for _ in range(3)]
    layout = draw(st.sampled_from(LAYOUTS))
    return draw(st.sampled_from([Matmul(*extents, layout), BatchMatmul(*extents, layout, draw(st.integers(1, 12)))]))


@st.composite
def wide_convolutions(draw):
    """Ones with enough positions and channels to be cut into tiles."""
    conv = draw(convolutions())
    grown = [e * draw(st.sampled_from([1, 3, 8])) for e in conv.image]
    channels = conv.out_channels * draw(st.sampled_from([1, 2, 4]))
    fields = {**conv.__dict__, "image": tuple(grown), "out_channels": channels}
    return Conv(**fields)


@settings(max_examples=25, derandomize=True, deadline=None)
@given(matmuls(), st.sampled_from(DEVICES), st.integers(0, 99))
def test_matrix_multiplications_are_right(workload, device, seed):
    assert answer(workload, device, seed)[1] is None


@pytest.mark.parametrize(
    "m, packed",
    [(1024, True), (512, True), (256, False), (1000, False)],
    ids=["a page apart", "half a page", "too few share a line", "no power of two"],
)
def test_rows_that_would_throw_each_other_out_of_cache_are_packed(m, packed):
    workload, config = Matmul(16, 64, m), {"X": [1, 1, 4, 4], "Y": [1, m // 8, 1, 8], "K": [1, 8, 8]}
    assert cpu.packs(workload, config) is packed
    assert fault(workload, config) is None
    root = cpu.schedule(workload, config).mod["main"].body.block
    assert ("Y_global" in [buffer.name for buffer in root.alloc_buffers]) is packed


@settings(max_examples=25, derandomize=True, deadline=None)
@given(st.sampled_from([512, 1024, 2048]), st.sampled_from(LAYOUTS), st.integers(1, 3), st.integers(0, 99))
def test_packed_matrix_multiplications_are_right(m, layout, b, seed):
    workload = Matmul(32, 64, m, layout) if b == 1 else BatchMatmul(32, 64, m, layout, b)
    assert answer(workload, DEVICES[2], seed)[1] is None


@settings(max_examples=50, derandomize=True, deadline=None)
@given(wide_convolutions(), st.sampled_from(DEVICES), st.integers(0, 99))
def test_convolutions_are_right(workload, device, seed):
    assert answer(workload, device, seed)[1] is None


@pytest.mark.parametrize("name", WORKLOADS)
def test_each_named_workload_runs_a_real_trial(name):
    """By the arguments that its experiments have; C1 and C2 on two images instead of 512."""
    workload = WORKLOADS[name]
    space = SearchSpace.from_json(workload.search_space(GENERIC["cpu"]), workload.constraints(find_device("cpu")))
    config = space.sample(random.Random(0))
    arguments = [name, *SMALLER.get(name, []), "--target", "cpu", "--config", json.dumps(config)]
    command = [sys.executable, "-m", "nni_tensor_tuners.trial", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=TESTS.parent)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert json.loads(ended.stdout)["tflops"] > 0
