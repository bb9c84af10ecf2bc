"""What becomes of networks' operators, on the vectors of AVX2 and of AVX-512, over odd, prime and tiny shapes."""

import random
from dataclasses import replace

import numpy as np
import pytest
import tvm
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from model_answers import answer, data_for, scheduled, tasks_of
from my_models import model_of
from tvm import relax

from nni_tensor_tuners import SearchSpace
from nni_tensor_tuners.tasks.device import find_device
from nni_tensor_tuners.tasks.network import lower, winograd
from nni_tensor_tuners.tasks.program import Program

CPU = find_device("cpu")
# LLVM's name of a processor that has no more than these, float32 lanes of a vector, and vector registers.
SETS = {"AVX2": ("haswell", 8, 16), "AVX-512": ("skylake-avx512", 16, 32)}
few = st.integers(1, 3)
channels = st.sampled_from([1, 2, 3, 5, 7, 8, 16, 17, 24, 32, 64])
extents = st.sampled_from([1, 2, 3, 5, 7, 8, 11, 13, 16, 19, 32, 37])


@st.composite
def convolutions(draw):
    """Of one image or two: straight, grouped, depthwise or transposed."""
    kind = draw(st.sampled_from(["straight", "grouped", "depthwise", "transposed"]))
    groups = {"grouped": 2, "depthwise": draw(st.sampled_from([3, 8, 17, 32]))}.get(kind, 1)
    inner = groups if kind == "depthwise" else groups * draw(channels)
    outer = groups * draw(few) if kind == "depthwise" else groups * draw(channels)
    kernel = [draw(st.integers(1, 4)) for _ in range(2)]
    numbers = {"strides": [draw(few), draw(few)], "padding": [draw(st.integers(0, 2)) for _ in range(4)]}
    image = [draw(extents), draw(extents)]
    transposed = kind == "transposed"
    shape = (inner, outer) if transposed else (outer, inner // groups)
    weight = relax.const(np.random.default_rng(0).uniform(-0.2, 0.2, (*shape, *kernel)).astype("float32"))
    operator = relax.op.nn.conv2d_transpose if transposed else relax.op.nn.conv2d
    follows = draw(st.booleans())

    def layers(emit, x):
        x = emit(operator(x, weight, **numbers, groups=groups))
        return emit(relax.op.nn.relu(x)) if follows else x

    top, left, bottom, right = numbers["padding"]
    for extent, taps, stride, around in zip(image, kernel, numbers["strides"], (top + bottom, left + right)):
        assume((extent - 1) * stride + taps - around > 0 if transposed else extent + around >= taps)
    return model_of((draw(st.integers(1, 2)), inner, *image), layers)


@st.composite
def products(draw):
    rows, inner, outer = draw(extents), draw(channels), draw(channels)
    weight = relax.const(np.random.default_rng(0).uniform(-0.2, 0.2, (inner, outer)).astype("float32"))
    return model_of((rows, inner), lambda emit, x: emit(relax.op.matmul(x, weight)))


@st.composite
def batched(draw):
    """A product of two inputs, made of one, each of which may lie transposed."""
    batch, rows, inner, outer = draw(few), draw(extents), draw(channels), draw(extents)
    turned = draw(st.booleans()), draw(st.booleans())
    second = relax.const(np.random.default_rng(0).uniform(-0.2, 0.2, (batch, inner * outer)).astype("float32"))
    shapes = [list(reversed(shape)) if way else shape for shape, way in zip(([rows, inner], [inner, outer]), turned)]

    def layers(emit, x):
        y = emit(relax.op.reshape(emit(relax.op.add(emit(relax.op.sum(x)), second)), [batch, *shapes[1]]))
        operands = [emit(relax.op.permute_dims(each, [0, 2, 1])) if way else each for each, way in zip((x, y), turned)]
        return emit(relax.op.matmul(*operands))

    return model_of((batch, *shapes[0]), layers)


@pytest.mark.parametrize("name", SETS)
@settings(max_examples=20, derandomize=True, deadline=None)
@given(st.one_of(convolutions(), convolutions(), products(), batched()), st.integers(0, 99))
def test_schedules_of_operators_are_right(name, model, seed):
    """By default schedules and by drawn ones, with Winograd's convolutions where there are any."""
    processor, lanes, registers = SETS[name]
    if lanes > CPU.vector_lanes:
        pytest.skip(f"this processor has no {name}")
    device = replace(CPU, mcpu=processor, vector_lanes=lanes, vector_registers=registers)
    rng = random.Random(seed)
    shapes = winograd.fits(lower.channels_last(model, device), lanes)
    ways = {shape: rng.choice(winograd.tiles_for(shape)) for shape in shapes if rng.random() < 0.5}
    module = lower.lowered(model, device, ways)
    data = data_for(model, seed)
    right = answer(tvm.compile(model, target="llvm"), data)
    tasks = tasks_of(module, device).values()
    for choose in (Program.default, lambda task, device: drawn(task, device, rng)):
        wrong = np.abs(answer(lower.build(module, scheduled(tasks, device, choose), device), data) - right).max()
        assert wrong <= 1e-4 * max(1.0, np.abs(right).max())


def drawn(task, device, rng):
    """A random configuration that can be built; None where none of some is."""
    space, settle = SearchSpace.from_json(task.search_space(device), task.constraints(device)), task.settler(device)
    return next(filter(None, (settle(space.sample(rng)) for _ in range(4))), None)
