import itertools
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nni_tensor_tuners.workloads import WORKLOADS, BatchMatmul, Conv, Matmul, from_dict, get_workload, to_dict

# OpEvo appendix B; table II of the NoSE paper (its H and W, C_in, C_out, kernel and stride).
SHAPES = {
    "mm1": [(512, 1024), (1024, 1024), (512, 1024)],
    "mm2": [(512, 1024), (1024, 4096), (512, 4096)],
    "mm3": [(512, 4096), (4096, 1024), (512, 1024)],
    "bmm1": [(960, 128, 128), (960, 128, 64), (960, 128, 64)],
    "bmm2": [(960, 128, 128), (960, 128, 64), (960, 128, 64)],
    "bmm3": [(960, 128, 64), (960, 128, 64), (960, 128, 128)],
    "c1": [(512, 3, 227, 227), (64, 3, 11, 11), (512, 64, 55, 55)],
    "c2": [(512, 64, 27, 27), (192, 64, 5, 5), (512, 192, 27, 27)],
    "resnet18-c1": [(1, 3, 224, 224), (64, 3, 7, 7), (1, 64, 112, 112)],
    "resnet18-c2": [(1, 64, 56, 56), (64, 64, 3, 3), (1, 64, 56, 56)],
    "resnet18-c3": [(1, 64, 56, 56), (64, 64, 1, 1), (1, 64, 56, 56)],
    "resnet18-c4": [(1, 64, 56, 56), (128, 64, 3, 3), (1, 128, 28, 28)],
    "resnet18-c5": [(1, 64, 56, 56), (128, 64, 1, 1), (1, 128, 28, 28)],
    "resnet18-c6": [(1, 128, 28, 28), (128, 128, 3, 3), (1, 128, 28, 28)],
    "resnet18-c7": [(1, 128, 28, 28), (256, 128, 3, 3), (1, 256, 14, 14)],
    "resnet18-c8": [(1, 128, 28, 28), (256, 128, 1, 1), (1, 256, 14, 14)],
    "resnet18-c9": [(1, 256, 14, 14), (256, 256, 3, 3), (1, 256, 14, 14)],
    "resnet18-c10": [(1, 256, 14, 14), (512, 256, 3, 3), (1, 512, 7, 7)],
    "resnet18-c11": [(1, 256, 14, 14), (512, 256, 1, 1), (1, 512, 7, 7)],
    "resnet18-c12": [(1, 512, 7, 7), (512, 512, 3, 3), (1, 512, 7, 7)],
}


@st.composite
def convolutions(draw, transposed=st.booleans()):
    """Small convolutions of every kind."""
    dimensions = draw(st.integers(1, 3))
    extents = lambda low, high: tuple(draw(st.integers(low, high)) for _ in range(dimensions))  # noqa: E731
    groups, back = draw(st.sampled_from([1, 1, 2, 3])), draw(transposed)
    channels = [groups * draw(st.integers(1, 3)) for _ in range(2)]
    kernel, stride, dilation, padding = extents(1, 3), extents(1, 3), extents(1, 2), extents(0, 2)
    more = tuple(draw(st.integers(0, s - 1)) for s in stride) if back else 0
    # Large enough for an output of at least one position.
    least = [max(1, d * (k - 1) + 1 - 2 * p) for k, d, p in zip(kernel, dilation, padding)]
    if back:
        least = [max(1, 1 + -(-(2 * p - d * (k - 1)) // s)) for k, d, p, s in zip(kernel, dilation, padding, stride)]
    image = tuple(draw(st.integers(low, low + 4)) for low in least)
    batch = draw(st.integers(1, 2))
    return Conv(batch, channels[0], image, channels[1], kernel, stride, padding, dilation, groups, back, more)


def directly(conv, x, w):
    """Equation (6) of the OpEvo paper, element by element, for a convolution that is not transposed."""
    z = np.zeros(conv.shapes[2])
    into, out_of = conv.in_channels // conv.groups, conv.out_channels // conv.groups
    for place in np.ndindex(*conv.shapes[2]):
        image, feature, *at = place
        for channel, *tap in itertools.product(range(into), *map(range, conv.kernel)):
            read = [a * s + t * d - p for a, s, t, d, p in zip(at, conv.stride, tap, conv.dilation, conv.padding)]
            if all(0 <= r < extent for r, extent in zip(read, conv.image)):
                element = x[(image, feature // out_of * into + channel, *read)]
                z[place] += element * w[(feature, channel, *tap)]
    return z


def test_the_named_workloads_have_the_papers_shapes():
    assert {name: workload.shapes for name, workload in WORKLOADS.items()} == SHAPES
    assert get_workload("bmm3").layout == "NT" and get_workload("bmm2").layout == "TN"
    assert get_workload("C2").flop == 2 * 512 * 192 * 27 * 27 * 64 * 25
    assert get_workload("bmm1").flop == 2 * 960 * 128 * 128 * 64


@settings(max_examples=40, derandomize=True, deadline=None)
@given(convolutions(st.just(False)))
def test_a_convolution_is_equation_6(conv):
    x, w = conv.inputs()
    z = conv.reference(x, w)
    assert z.shape == conv.shapes[2] and z.dtype == np.float32
    np.testing.assert_allclose(z, directly(conv, x, w), atol=1e-5)


@settings(max_examples=40, derandomize=True, deadline=None)
@given(convolutions(st.just(True)))
def test_a_transposed_convolution_is_the_adjoint_of_the_convolution(back):
    """<conv(z), x> = <z, back(x)> for all z and x, where conv takes what back gives."""
    forward = Conv(
        back.batch,
        back.out_channels,
        back.output,
        back.in_channels,
        back.kernel,
        back.stride,
        back.padding,
        back.dilation,
        back.groups,
    )
    assert forward.shapes[1] == back.shapes[1] and forward.output == back.image
    (x, w), (z, _) = back.inputs(0), forward.inputs(1)
    left, right = np.vdot(forward.reference(z, w), x), np.vdot(z, back.reference(x, w))
    assert left == pytest.approx(right, abs=1e-3)
    assert forward.flop == back.flop


@settings(max_examples=15, derandomize=True, deadline=None)
@given(convolutions())
def test_the_tvm_program_of_a_convolution_gives_numpy_s_answer(conv):
    tvm = pytest.importorskip("tvm")
    x, w = conv.inputs()
    expected = conv.reference(x, w)
    arguments = [tvm.runtime.tensor(array) for array in (x, w, np.full_like(expected, np.nan))]
    tvm.compile(conv.prim_func(), target="llvm")["main"](*arguments)
    np.testing.assert_allclose(arguments[2].numpy(), expected, atol=1e-4)


@pytest.mark.parametrize("layout", ["NN", "NT", "TN", "TT"])
def test_a_batch_of_matrix_multiplications(layout):
    tvm = pytest.importorskip("tvm")
    workload = BatchMatmul(3, 4, 5, layout, 6)
    x, y = workload.inputs()
    z = workload.reference(x, y)
    for i in range(6):
        np.testing.assert_allclose(z[i], Matmul(3, 4, 5, layout).reference(x[i], y[i]), rtol=1e-6)
    arguments = [tvm.runtime.tensor(array) for array in (x, y, np.zeros_like(z))]
    tvm.compile(workload.prim_func(), target="llvm")["main"](*arguments)
    np.testing.assert_allclose(arguments[2].numpy(), z, atol=1e-5)


def test_workloads_survive_json():
    for workload in [*WORKLOADS.values(), Conv(1, 2, (5,), 2, 3, groups=2, transposed=True, stride=2, output_padding=1)]:
        assert from_dict(json.loads(json.dumps(to_dict(workload)))) == workload


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"image": (5, 5, 5, 5)}, "conv: image must be 1 to 3 integers"),
        ({"image": 5}, "conv: image must be 1 to 3 integers, got 5"),
        ({"in_channels": 0}, "conv2d: in_channels must be an integer >= 1, got 0"),
        ({"kernel": (3, 3, 3)}, "conv2d: kernel must be 2 integers"),
        ({"kernel": 9}, "kernel (9, 9) is larger than the padded image (5, 5)"),
        ({"padding": -1}, "conv2d: padding must be an integer >= 0, got -1"),
        ({"groups": 3}, "conv2d: groups must divide in_channels, got 3 for 4"),
        ({"output_padding": 1}, "output_padding must be less than the stride, and is for transposed ones only"),
        ({"transposed": True, "stride": 2, "output_padding": 2}, "output_padding must be less than the stride"),
        ({"transposed": 1}, "transposed must be true or false"),
    ],
)
def test_a_bad_field_is_named(fields, message):
    good = {"batch": 1, "in_channels": 4, "image": (5, 5), "out_channels": 6, "kernel": 3}
    Conv(**good)
    with pytest.raises(ValueError) as error:
        Conv(**{**good, **fields})
    assert message in str(error.value)
