"""Depthwise convolutions of images that lie channels first."""

import random
from itertools import product

import numpy as np
import pytest
import tvm
from conftest import TESTS
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from tvm import relax

from nni_tensor_tuners import SearchSpace
from nni_tensor_tuners.measure import measure
from nni_tensor_tuners.tasks.device import find_device
from nni_tensor_tuners.tasks.network import lower, models
from nni_tensor_tuners.tasks.network.planes import depthwise
from nni_tensor_tuners.tasks.program import Program
from nni_tensor_tuners.tasks.program.load import save
from nni_tensor_tuners.tasks.target import target_of

CPU = find_device("cpu")
MODELS = TESTS / "my_models.py"
SAMPLES = random.Random(0)
RNG = np.random.default_rng(0)


def expected(data, weight, strides, padding, dilation):
    """Tap by tap, a plane of the output at a time."""
    top, left, bottom, right = padding
    data = np.pad(data, [(0, 0), (0, 0), (top, bottom), (left, right)]).repeat(len(weight) // data.shape[1], axis=1)
    reach = [dilate * (taps - 1) for dilate, taps in zip(dilation, weight.shape[1:])]
    out = 0
    for y, x in product(*map(range, weight.shape[1:])):
        down, across = y * dilation[0], x * dilation[1]
        rows = slice(down, data.shape[2] - reach[0] + down, strides[0])
        columns = slice(across, data.shape[3] - reach[1] + across, strides[1])
        out = out + data[:, :, rows, columns] * weight[None, :, y, x, None, None]
    return out


small = st.integers(1, 3)
cases = st.tuples(
    st.tuples(st.integers(1, 2), small, st.integers(1, 9), st.integers(4, 37)),
    small,  # filters of each channel
    st.tuples(st.integers(1, 4), st.integers(1, 5)),
    st.tuples(small, small),
    st.tuples(*[st.integers(0, 3)] * 4),
    st.tuples(small, small),
    st.sampled_from([4, 8, 16]),
)


@settings(max_examples=25, deadline=None)
@given(cases)
@example(((1, 3, 7, 7), 1, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 16))  # rows shorter than a vector
@example(((1, 2, 6, 17), 2, (2, 2), (2, 2), (0, 0, 0, 0), (1, 1), 8))  # a last element that no tap reads
@example(((2, 1, 9, 33), 1, (3, 5), (2, 3), (0, 3, 2, 1), (2, 2), 16))
def test_a_depthwise_convolution_is_numpy_s(case):
    shape, each, kernel, strides, padding, dilation, lanes = case
    filters = shape[1] * each
    rest = [shape[2 + axis] + padding[axis] + padding[2 + axis] - dilation[axis] * (kernel[axis] - 1) for axis in (0, 1)]
    assume(min(rest) > 0 and (rest[1] - 1) // strides[1] + 1 >= 4)
    data, weight = RNG.uniform(-1, 1, shape).astype("float32"), RNG.uniform(-1, 1, (filters, *kernel)).astype("float32")
    right = expected(data, weight, strides, padding, dilation)
    function = depthwise(shape, filters, kernel, strides, padding, dilation, lanes).with_attr("global_symbol", "main")
    result = tvm.runtime.tensor(np.full(right.shape, np.nan, "float32"))
    built = tvm.compile(tvm.IRModule({"main": function}), target=target_of(CPU))
    built.mod["main"](tvm.runtime.tensor(data), tvm.runtime.tensor(weight), result)
    np.testing.assert_allclose(result.numpy(), right, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("strides", [1, 2])
def test_its_schedules_compute_it_wherever_rows_are_read(strides, tmp_path):
    function = depthwise([1, 6, 20, 20], 6, (3, 3), (strides, strides), (1, 1, 1, 1), (1, 1), CPU.vector_lanes)
    task = Program(str(save(function, tmp_path)))
    assert task.flop == 2 * 9 * 6 * (20 // strides) ** 2  # rounded up to vectors it computes more
    space, settle = SearchSpace.from_json(task.search_space(CPU), task.constraints(CPU)), task.settler(CPU)
    places = {}
    for _ in range(40):
        config = settle(space.sample(SAMPLES))
        if config is not None:
            places.setdefault(config["sketch"]["rows_at"] >= 0, config)
    for config in (task.default(CPU), *places.values()):
        assert measure(task, config, CPU)["error"] == ""
    assert len(places) == 2


@pytest.mark.parametrize("follows", [False, True])
def test_it_stands_for_a_convolution_between_two_changes_of_layout(follows):
    text = f"{MODELS}:depthwise(follows={follows})"
    module = lower.lowered(models.read(text), CPU)
    names = [name for name, _, _ in lower.tasks(module, CPU)]
    assert (names == ["depthwise"]) == (not follows)
    data = RNG.uniform(-1, 1, (1, 24, 9, 10)).astype("float32")
    built, plain = lower.build(module, [], CPU), tvm.compile(models.read(text), target="llvm")
    answers = [relax.VirtualMachine(each, tvm.cpu())["main"](tvm.runtime.tensor(data)).numpy() for each in (built, plain)]
    np.testing.assert_allclose(*answers, rtol=1e-4, atol=1e-5)
