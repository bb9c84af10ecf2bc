"""The named tensor programs: their shapes and names, and what they compute, beside NumPy."""

import inspect
import re
import subprocess
import sys

import numpy as np
import pytest
import tvm
from numpy.lib.stride_tricks import sliding_window_view
from tvm import s_tir

from nni_tensor_tuners.tasks.device import find_device
from nni_tensor_tuners.tasks.program import workloads
from nni_tensor_tuners.tasks.target import target_of

# Bansor, section V.A; for the others Ansor's first.
PRINTED = {"c1d": 2}


def compiled(func):
    """The unscheduled program as a function of arrays that returns its output."""
    module = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    library = tvm.compile(module, target=target_of(find_device("cpu")))

    def run(*inputs):
        shape = [int(extent) for extent in func.params[-1].shape]
        result = tvm.runtime.tensor(np.full(shape, 77, func.params[-1].dtype))
        library["main"](*map(tvm.runtime.tensor, inputs), result)
        return result.numpy()

    return run


def arrays(func, seed=0):
    """Inputs of a program: floats in [-1, 1), 8-bit integers over their whole range."""
    rng = np.random.default_rng(seed)
    inputs = []
    for buffer in func.params[:-1]:
        shape, dtype = [int(extent) for extent in buffer.shape], str(buffer.dtype)
        if "int" in dtype:
            least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
            inputs.append(rng.integers(least, most, shape, dtype, endpoint=True))
        else:
            inputs.append((rng.random(shape) * 2 - 1).astype(dtype))
    return inputs


def windows(data, kernel, stride, padding, dilation=1, dimensions=2):
    """(n, *output, *rest, *kernel): what each position of the kernel sees; the dimensions of the image come second."""
    spatial = tuple(range(1, 1 + dimensions))
    data = np.pad(data, [(padding, padding) if axis in spatial else (0, 0) for axis in range(data.ndim)])
    seen = sliding_window_view(data, [dilation * (kernel - 1) + 1] * dimensions, spatial)
    every = [slice(None), *[slice(None, None, stride)] * dimensions, *[slice(None)] * (data.ndim - 1 - dimensions)]
    return seen[(*every, *[slice(None, None, dilation)] * dimensions)]


def convolved(data, weight, kernel, stride=1, padding=0, dilation=1, groups=1, **_):
    """A convolution over one, two or three dimensions, channels last."""
    dimensions = data.ndim - 2
    seen = windows(data, kernel, stride, padding, dilation, dimensions)
    weight = np.moveaxis(weight, (-2, -1), (1, 0))  # f, c, *kernel
    axes = [dimensions + 1, *range(dimensions + 2, seen.ndim)]
    parts = zip(np.split(seen, groups, dimensions + 1), np.split(weight, groups))
    return np.concatenate([np.tensordot(part, own, (axes, range(1, weight.ndim))) for part, own in parts], -1)


def transposed(data, weight, stride, padding, kernel, **_):
    """Each element of the input adds a copy of the kernel to the output."""
    n, height, width, _ = data.shape
    full = np.zeros((n, (height - 1) * stride + kernel, (width - 1) * stride + kernel, weight.shape[-1]))
    for y, x in np.ndindex(height, width):
        place = full[:, y * stride : y * stride + kernel, x * stride : x * stride + kernel]
        place += np.einsum("nc,yxcf->nyxf", data[:, y, x], weight)
    return full[:, padding : full.shape[1] - padding, padding : full.shape[2] - padding]


def depthwise(data, weight, kernel, stride, padding, **_):
    return np.einsum("nyxcij,ijc->nyxc", windows(data, kernel, stride, padding), weight)


def capsules(data, weight, kernel, stride, padding, **_):
    return np.einsum("nyxikcrs,rskjcf->nyxijf", windows(data, kernel, stride, padding), weight)


def softmax(data, **_):
    powers = np.exp(data - data.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def attention(query, key, **_):
    return softmax(np.einsum("bihd,bjhd->bhij", query, key))


def normalised(data, gamma, beta, **_):
    return (data - data.mean(1, keepdims=True)) / np.sqrt(data.var(1, keepdims=True) + 1e-5) * gamma + beta


def conv_layer(data, weight, scale, shift, **shape):
    return np.maximum(convolved(data, weight, **shape) * scale + shift, 0)


def conv_bias_relu(data, weight, bias, **shape):
    return np.maximum(convolved(data, weight, **shape) + bias, 0)


def product(left, right, **_):
    return left @ right


def norm(data, **_):
    return np.linalg.norm(data, axis=(1, 2))


IMAGE = {"height": 7, "width": 9, "in_channels": 4, "out_channels": 6, "kernel": 3, "stride": 1, "padding": 1, "batch": 2}

# Program, shape, what it computes. Extents differ, so that no two can be taken for each other.
CASES = [
    ("c1d", {"length": 11, "in_channels": 3, "out_channels": 5, "kernel": 5, "stride": 1, "padding": 2, "batch": 2}, convolved),
    ("c1d", {"length": 10, "in_channels": 3, "out_channels": 5, "kernel": 1, "stride": 2, "padding": 0}, convolved),
    ("c2d", {**IMAGE, "kernel": 7, "stride": 2, "padding": 3}, convolved),
    ("c2d", {**IMAGE, "kernel": 1, "padding": 0}, convolved),
    ("c3d", {**IMAGE, "depth": 5, "stride": 2}, convolved),
    ("grp", {**IMAGE, "groups": 2, "stride": 2}, convolved),
    ("grp", {**IMAGE, "groups": 1}, convolved),
    ("dil", {**IMAGE, "dilation": 2, "stride": 2}, convolved),
    ("dep", {"height": 7, "width": 9, "channels": 5, "kernel": 3, "stride": 2, "padding": 1, "batch": 2}, depthwise),
    ("t2d", {**IMAGE, "kernel": 4, "stride": 2}, transposed),
    ("t2d", {**IMAGE, "kernel": 5, "stride": 3}, transposed),
    ("t2d", {**IMAGE, "stride": 1, "padding": 2}, transposed),
    ("t2d", {**IMAGE, "kernel": 2, "stride": 4, "padding": 0}, transposed),
    ("cap", {**IMAGE, "stride": 2, "capsule": 3}, capsules),
    ("gmm", {"n": 5, "k": 6, "m": 7, "batch": 3}, product),
    ("nrm", {"n": 5, "m": 7, "batch": 3}, norm),
    ("conv_layer", {**IMAGE, "stride": 2}, conv_layer),
    ("tbs", {"length": 6, "heads": 3, "dim": 5, "batch": 2}, attention),
    ("matmul", {"n": 5, "k": 6, "m": 7}, product),
    ("softmax", {"n": 5, "m": 7}, softmax),
    ("layer_norm", {"n": 5, "m": 7}, normalised),
    ("conv_bias_relu", IMAGE, conv_bias_relu),
]


def defaults(program):
    return {name: field.default for name, field in inspect.signature(program).parameters.items() if name != "batch"}


def test_every_program_has_a_case():
    assert {name for name, _, _ in CASES} == set(workloads.PROGRAMS)


@pytest.mark.parametrize("name, shape, reference", CASES, ids=lambda value: value if isinstance(value, str) else "")
def test_it_computes_what_numpy_does(name, shape, reference):
    func = getattr(workloads, name)(**shape)
    inputs = arrays(func)
    exact = reference(*(array.astype(np.float64) for array in inputs), **shape)
    result = compiled(func)(*inputs)
    assert result.shape == exact.shape
    np.testing.assert_allclose(result, exact, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "dtype, out_dtype, returned, tolerance",
    [
        ("float16", None, "float16", 1e-2),
        ("float16", "float32", "float32", 1e-5),
        ("int8", None, "int32", 0),
        ("uint8", None, "int32", 0),
        ("int32", None, "int32", 0),
    ],
)
def test_a_product_of_another_dtype(dtype, out_dtype, returned, tolerance):
    func = workloads.matmul(5, 60, 7, dtype, out_dtype)
    a, b = (array % 1000 if dtype == "int32" else array for array in arrays(func))
    result = compiled(func)(a, b)
    assert result.dtype == returned
    wide = np.int64 if "int" in dtype else np.float64
    np.testing.assert_allclose(result, a.astype(wide) @ b.astype(wide), rtol=tolerance, atol=tolerance * 10)


@pytest.mark.parametrize("name", workloads.PROGRAMS)
def test_the_default_is_a_published_shape_and_can_be_scheduled(name):
    """Its names are read by people: no loop is called by a number."""
    program = getattr(workloads, name)
    text = s_tir.Schedule(program()).mod.script()
    loops = re.findall("for (.*) in ", text)
    assert loops and not [names for names in loops if re.search("[0-9]", names)]
    if name in workloads.SHAPES:
        assert defaults(program) == workloads.SHAPES[name][PRINTED.get(name, 0)]


def test_loops_of_a_convolution():
    schedule = s_tir.Schedule(workloads.c3d())
    names = [schedule.get(loop).loop_var.name for loop in schedule.get_loops(schedule.get_sblock("conv"))]
    assert names == ["n", "z", "y", "x", "f", "rz", "ry", "rx", "rc"]


def test_the_published_shapes():
    assert set(workloads.SHAPES) == {*workloads.OPERATORS, *workloads.SUBGRAPHS}
    for name, shapes in workloads.SHAPES.items():
        assert len(shapes) == 4
        for shape in shapes:
            funcs = [getattr(workloads, name)(**shape, batch=batch) for batch in (1, 16)]
            assert [int(func.params[0].shape[0]) for func in funcs] == [1, 16]


@pytest.mark.parametrize(
    "name, shape, says",
    [
        ("c2d", {"height": 0}, "c2d: height must be an integer >= 1, got 0"),
        ("c2d", {"stride": 0}, "c2d: stride must be an integer >= 1, got 0"),
        ("c2d", {"padding": -1}, "c2d: padding must be an integer >= 0, got -1"),
        ("gmm", {"n": True}, "gmm: n must be an integer >= 1, got True"),
        ("dil", {"height": 6}, "dil: a kernel that reaches over 13 is larger than the padded image, 12"),
        ("dep", {"width": 1, "padding": 0}, "dep: a kernel that reaches over 3 is larger than the padded image, 1"),
        ("grp", {"groups": 3}, "grp: groups must divide the channels, got 3 for 64 and 128"),
        ("t2d", {"padding": 4}, "t2d: padding must be less than the kernel, got 4 for 4"),
        ("t2d", {"height": 1, "padding": 3}, "t2d: nothing is left of 1 x 4 by padding 3"),
    ],
)
def test_a_bad_shape_is_one_clear_line(name, shape, says):
    with pytest.raises(ValueError) as error:
        getattr(workloads, name)(**shape)
    assert str(error.value) == says


def test_the_table_is_read_without_tvm_and_numpy():
    script = "import sys, nni_tensor_tuners.tasks.program.workloads; print({'tvm', 'numpy'} & set(sys.modules))"
    command = [sys.executable, "-c", script]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == "set()"
