"""The matrix norm, on the CPU and as generated CUDA."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_cpu import DEVICES, answer
from test_cuda import HOPPER, NVCC, emulated, instantiated, source_of, space_of
from tvm.support import nvcc

from nni_tensor_tuners.measure.worker import wrong_answer
from nni_tensor_tuners.tasks.device import GENERIC
from nni_tensor_tuners.tasks.norm import Norm
from nni_tensor_tuners.tasks.target import target_of

norms = st.builds(Norm, st.integers(1, 40), st.sampled_from([1, 3, 4, 6, 16, 31, 48]), st.sampled_from([1, 2, 7, 12, 40]))


def test_it_is_the_square_root_of_the_sum_of_squares():
    task = Norm(30, 14, 5)
    (x,) = task.inputs()
    exact = np.linalg.norm(x.astype(np.float64), axis=(1, 2))
    assert wrong_answer(task.reference(x), exact, task.tolerance) is None
    x[2, 29, 13] = 0  # left out
    assert "1 of 5 elements differ" in wrong_answer(task.reference(x), exact, task.tolerance)
    assert task.flop == 2 * 5 * 30 * 14


@settings(max_examples=12, derandomize=True, deadline=None)
@given(norms, st.sampled_from(DEVICES), st.integers(0, 99))
def test_the_cpu_kernels_are_right(task, device, seed):
    assert answer(task, device, seed)[1] is None


@settings(max_examples=2, deadline=None, derandomize=True, database=None)
@given(st.lists(st.tuples(norms, st.integers(0, 99)), min_size=8, max_size=8))
def test_the_cuda_kernels_are_right(tmp_path_factory, drawn):
    cases = [(task, space_of(task).sample(random.Random(seed))) for task, seed in drawn]
    assert [case for case in zip(emulated(cases, tmp_path_factory.mktemp("kernels")), cases) if case[0] is not None] == []


def test_threads_that_fill_warps_and_others(tmp_path):
    """By shuffles within a warp, or from warp to warp, and through shared memory."""
    task, sources = Norm(480, 480, 2), []
    threads = {2: True, 32: True, 96: True, 256: True, 225: False, 45: False}
    configs = [{"B": [1, 2], "K": [480 * 480 // count // 4, 1, count, 4]} for count in threads]
    assert emulated([(task, config) for config in configs], tmp_path, lambda s: sources.append(s) or s) == [None] * 6
    assert ["__shfl" in source for source in sources] == list(threads.values())
    assert all("*(float4*)" in source for source in sources)


@pytest.mark.parametrize("shape", [(1, 1, 1), (256, 256, 1), (256, 256, 16), (31, 31, 1), (7, 1021, 3)], ids=str)
def test_every_shape_has_a_configuration_on_every_device(shape):
    task = Norm(*shape)
    assert space_of(task).sample(random.Random(0))
    for device in DEVICES:
        assert answer(task, device, 0)[1] is None


@NVCC
def test_the_kernel_compiles_to_cubin():
    task = Norm(480, 480, 4)
    assert task.constraints(HOPPER) == task.constraints(GENERIC["cuda"])  # nothing in it needs more than any device has
    config = {"B": [4, 1], "K": [225, 1, 256, 4]}
    with target_of(HOPPER):
        source = source_of(instantiated(task, config, HOPPER), HOPPER)
        cubin = nvcc.compile_cuda(source, target_format="cubin", arch="sm_90", compiler="nvcc")
    assert bytes(cubin[:4]) == b"\x7fELF"
