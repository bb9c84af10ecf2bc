"""exp, erf and tanh in vectors on a CPU: as exact as they say, everything else as TVM compiles it."""

import math

import numpy as np
import pytest
import tvm
from tvm import te, tirx

from nni_tensor_tuners.measure.build import compile_module
from nni_tensor_tuners.tasks.compiling import compiled
from nni_tensor_tuners.tasks.device import find_device
from nni_tensor_tuners.tasks.program import Program
from nni_tensor_tuners.tasks.target import target_of

CPU = find_device("cpu")
TARGETS = [target_of(CPU), *(tvm.target.Target({"kind": "llvm", "mcpu": name}) for name in ("haswell", "x86-64"))]
SPECIAL = np.array([0.0, -0.0, 1e-40, -1e-30, 1e30, -1e30, np.inf, -np.inf, np.nan], "float32")
EXACT = {
    "exp": np.exp,
    "erf": np.vectorize(math.erf),
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "exp10": lambda x: 10.0**x,
}


def elementwise(function, count, dtype="float32", lanes=None):
    data = te.placeholder((count,), dtype, name="data")
    schedule = tvm.s_tir.Schedule(te.create_prim_func([data, te.compute((count,), lambda i: function(data[i]), name="result")]))
    if lanes:
        schedule.vectorize(schedule.split(schedule.get_loops("result")[0], [None, lanes])[1])
    return schedule.mod


def computed(module, data, target=TARGETS[0]):
    result = tvm.runtime.tensor(np.zeros_like(data))
    compiled(module, target).mod["main"](tvm.runtime.tensor(data), result)
    return result.numpy()


def units_in_the_last_place(values, exact):
    exact = np.asarray(exact, "float64")
    spacing = np.spacing(np.maximum(np.abs(exact).astype("float32"), np.float32(1e-45)))
    return (np.abs(values - exact) / spacing).max()


@pytest.mark.parametrize("target", TARGETS, ids=["this CPU", "haswell", "x86-64"])
@pytest.mark.parametrize("name, most", [("exp", 1), ("erf", 6), ("tanh", 6)])
def test_as_exact_as_documented(name, most, target):
    data = np.concatenate([np.linspace(-end, end, 20_000, dtype="float32") for end in (1e-3, 0.7, 4, 10, 88)])
    data = np.concatenate([data, np.linspace(-103, -87, 5_000, dtype="float32")])  # exp of these is no normal number
    if target is not TARGETS[0]:
        data = data[::4].copy()
    values = computed(elementwise(getattr(tirx, name), len(data)), data, target)
    assert units_in_the_last_place(values, EXACT[name](data.astype(float))) <= most


@pytest.mark.parametrize("lanes", [None, 1, 8, 15, 16, 20])
def test_what_is_no_number_and_whatever_the_vector(lanes):
    data = np.resize(SPECIAL, 240)
    for name in ("exp", "erf", "tanh"):
        with np.errstate(over="ignore"):
            expected = EXACT[name](data.astype(float)).astype("float32")
        result = computed(elementwise(getattr(tirx, name), 240, lanes=lanes), data)
        if lanes == 20 and name == "tanh":  # by TVM, which loses the least ones
            expected[np.abs(expected) < 1e-20] = 0
        np.testing.assert_allclose(result, expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("name, end, most", [("sigmoid", 80, 3), ("exp10", 2, 6)])
def test_what_tvm_makes_of_exp(name, end, most):
    data = np.linspace(-end, end, 9_999, dtype="float32")
    module = elementwise(getattr(tirx, name), len(data))
    assert units_in_the_last_place(computed(module, data), EXACT[name](data.astype(float))) <= most
    assert "expf" not in compiled(module, TARGETS[0]).mod.inspect_source("asm")


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_other_types_are_as_tvm_has_them(dtype):
    data = np.linspace(-5, 5, 64).astype(dtype)
    module = elementwise(tirx.exp, 64, dtype)
    expected = tvm.runtime.tensor(np.zeros_like(data))
    tvm.compile(module, target=TARGETS[0]).mod["main"](tvm.runtime.tensor(data), expected)
    np.testing.assert_array_equal(computed(module, data), expected.numpy())


def test_functions_of_functions_compile():
    """As expressions of TVM's, functions in functions would be written out exponentially often."""

    def nested(x):
        for _ in range(8):
            x = tirx.tanh(tirx.exp(tirx.erf(x)) - 1.0)
        return x

    data = np.linspace(-3, 3, 96, dtype="float32")
    expected = data.astype(float)
    for _ in range(8):
        expected = np.tanh(np.exp(EXACT["erf"](expected)) - 1)
    np.testing.assert_allclose(computed(elementwise(nested, 96, lanes=16), data), expected, rtol=1e-5, atol=1e-6)


def test_a_kernel_calls_no_library_s_exp():
    task = Program("softmax(n=8, m=32)")
    library = compile_module(task.module(task.default(CPU), CPU), target_of(CPU))
    assert "expf" not in library.mod.inspect_source("asm")
    assert "expf" in tvm.compile(task.source, target=target_of(CPU)).mod.inspect_source("asm")  # what it is compared with
