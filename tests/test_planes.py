"""Convolutions of images that lie channels first."""

import random
from itertools import product
from math import prod

import numpy as np
import pytest
import tvm
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from model_answers import MODELS, lowered_beside, scheduled, tasks_of

from nni_tensor_tuners import SearchSpace
from nni_tensor_tuners.measure import measure
from nni_tensor_tuners.tasks.device import find_device
from nni_tensor_tuners.tasks.network.planes import by_rows
from nni_tensor_tuners.tasks.program import Program
from nni_tensor_tuners.tasks.program.load import save
from nni_tensor_tuners.tasks.target import target_of

CPU = find_device("cpu")
SAMPLES = random.Random(0)
RNG = np.random.default_rng(0)


def expected(data, weight, strides, padding, dilation):
    """Tap by tap, a plane of the output at a time, or all channels of it; ``weight`` as of `by_rows`."""
    top, left, bottom, right = padding
    data = np.pad(data, [(0, 0), (0, 0), (top, bottom), (left, right)])
    down, across = kernel = weight.shape[1:3]
    if weight.ndim == 3:
        data = data.repeat(len(weight) // data.shape[1], axis=1)
    reach = [dilate * (taps - 1) for dilate, taps in zip(dilation, kernel)]
    out = 0
    for y, x in product(range(down), range(across)):
        low, first = y * dilation[0], x * dilation[1]
        rows = slice(low, data.shape[2] - reach[0] + low, strides[0])
        columns = slice(first, data.shape[3] - reach[1] + first, strides[1])
        read = data[:, :, rows, columns]
        if weight.ndim == 4:
            out = out + np.einsum("ncyx,cf->nfyx", read, weight[:, y, x])
        else:
            out = out + read * weight[None, :, y, x, None, None]
    return out


small = st.integers(1, 3)
cases = st.tuples(
    st.tuples(st.integers(1, 2), small, st.integers(1, 9), st.integers(4, 37)),
    st.tuples(small, st.booleans()),  # filters of each channel, or of all
    st.tuples(st.integers(1, 4), st.integers(1, 5)),
    st.tuples(small, small),
    st.tuples(*[st.integers(0, 3)] * 4),
    st.tuples(small, small),
    st.sampled_from([4, 8, 16]),
)


@settings(max_examples=25, deadline=None)
@given(cases)
@example(((1, 3, 7, 7), (1, False), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 16))  # rows shorter than a vector
@example(((1, 2, 6, 17), (2, False), (2, 2), (2, 2), (0, 0, 0, 0), (1, 1), 8))  # a last element that no tap reads
@example(((1, 3, 11, 32), (5, True), (7, 7), (2, 2), (3, 3, 3, 3), (1, 1), 16))
@example(((2, 1, 9, 33), (1, False), (3, 5), (2, 3), (0, 3, 2, 1), (2, 2), 16))
def test_a_convolution_by_rows_is_numpy_s(case):
    shape, (each, whole), kernel, strides, padding, dilation, lanes = case
    weights = (shape[1], *kernel, each) if whole else (shape[1] * each, *kernel)
    rest = [shape[2 + axis] + padding[axis] + padding[2 + axis] - dilation[axis] * (kernel[axis] - 1) for axis in (0, 1)]
    assume(min(rest) > 0 and (rest[1] - 1) // strides[1] + 1 >= 4)
    data, weight = RNG.uniform(-1, 1, shape).astype("float32"), RNG.uniform(-1, 1, weights).astype("float32")
    right = expected(data, weight, strides, padding, dilation)
    function = by_rows(shape, weights, strides, padding, dilation, lanes).with_attr("global_symbol", "main")
    result = tvm.runtime.tensor(np.full(right.shape, np.nan, "float32"))
    built = tvm.compile(tvm.IRModule({"main": function}), target=target_of(CPU))
    built.mod["main"](tvm.runtime.tensor(data), tvm.runtime.tensor(weight), result)
    np.testing.assert_allclose(result.numpy(), right, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("weights", [(6, 3, 3), (6, 3, 3, 8)], ids=["depthwise", "whole"])
@pytest.mark.parametrize("strides", [1, 2])
def test_its_schedules_compute_it_wherever_rows_are_read(strides, weights, tmp_path):
    function = by_rows([1, 6, 20, 20], weights, (strides, strides), (1, 1, 1, 1), (1, 1), CPU.vector_lanes)
    task = Program(str(save(function, tmp_path)))
    assert task.flop == 2 * prod(weights) * (20 // strides) ** 2  # rounded up to vectors it computes more
    space, settle = SearchSpace.from_json(task.search_space(CPU), task.constraints(CPU)), task.settler(CPU)
    places = {}
    for _ in range(40):
        config = settle(space.sample(SAMPLES))
        if config is not None:
            places.setdefault(config["sketch"]["rows_at"] >= 0, config)
    for config in (task.default(CPU), *places.values()):
        assert measure(task, config, CPU)["error"] == ""
    assert len(places) == 2


def answers(text):
    """Of a model with default schedules and of the model as it is, on the same data; and the names of the tasks."""
    _, module, answers_with, expected = lowered_beside(text, CPU)
    tasks = tasks_of(module, CPU)
    return [*tasks], answers_with(scheduled(tasks.values(), CPU)), expected


@pytest.mark.parametrize("follows", [False, True])
def test_it_stands_for_a_depthwise_convolution_between_two_changes_of_layout(follows):
    names, *both = answers(f"{MODELS}:depthwise(follows={follows})")
    assert (names == ["depthwise"]) == (not follows)
    np.testing.assert_allclose(*both, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("width, alone", [(2 * CPU.vector_lanes, True), (2 * CPU.vector_lanes + 2, False)])
def test_a_first_layer_is_computed_by_rows_where_they_fill_vectors_and_reads_its_image_as_it_lies_where_not(width, alone):
    names, *both = answers(f"{MODELS}:first_layer(width={width})")
    assert sorted(names) == (["conv2d"] if alone else ["conv2d", "permutation"])  # of its result, in the second case
    np.testing.assert_allclose(*both, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "more", ["", "kernel=(5,3)", "kernel=(4,5),strides=3,padding=1", "kernel=(2,3),strides=3,padding=0", "inner=1"]
)
def test_a_transposed_convolution_to_few_channels_is_computed_by_rows(more):
    names, *both = answers(
        f"{MODELS}:transposed(image=(5,{2 * CPU.vector_lanes}),outer=3,alone=True{',' + more if more else ''})"
    )
    assert names == ["conv2d_transpose"]
    np.testing.assert_allclose(*both, rtol=1e-4, atol=1e-5)
