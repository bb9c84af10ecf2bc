"""Operators: what they compute, as plain data, and as arguments."""

import argparse
import itertools
import json
import subprocess
import sys
from dataclasses import dataclass, replace

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st

from nni_tensor_tuners.tasks import OPERATORS, WORKLOADS, Task, from_dict, get_task
from nni_tensor_tuners.tasks import device as devices
from nni_tensor_tuners.tasks.arguments import add_shape, named_task, task_of
from nni_tensor_tuners.tasks.conv import Conv
from nni_tensor_tuners.tasks.device import GENERIC, KINDS, Device, limits_of
from nni_tensor_tuners.tasks.matmul import BatchMatmul, Matmul
from nni_tensor_tuners.tasks.task import TemplateTask

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
    assert get_task("bmm3").layout == "NT" and get_task("bmm2").layout == "TN"
    assert get_task("C2").flop == 2 * 512 * 192 * 27 * 27 * 64 * 25
    assert get_task("bmm1").flop == 2 * 960 * 128 * 128 * 64


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
    x, w = conv.inputs()
    expected = conv.reference(x, w)
    arguments = [tvm.runtime.tensor(array) for array in (x, w, np.full_like(expected, np.nan))]
    tvm.compile(conv.prim_func(), target="llvm")["main"](*arguments)
    np.testing.assert_allclose(arguments[2].numpy(), expected, atol=1e-4)


@pytest.mark.parametrize("layout", ["NN", "NT", "TN", "TT"])
def test_a_batch_of_matrix_multiplications(layout):
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
        assert from_dict(json.loads(json.dumps(workload.to_dict()))) == workload


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


def test_bad_plain_data_is_one_line():
    assert Matmul(4, 5, 6, "NT").shapes == [(4, 5), (6, 5), (4, 6)]
    for data, message in (
        ({"operator": "conv9d"}, "unknown operator 'conv9d'; allowed: matmul"),
        ({}, "unknown operator None; allowed: matmul"),
        ({"operator": "matmul", "n": 1, "k": 1}, "matmul: .* missing .* 'm'"),
        ({"operator": "matmul", "n": 1, "k": 1, "m": 1, "q": 1}, "matmul: .* 'q'"),
        ({"operator": "matmul", "n": 0, "k": 1, "m": 1}, "n must be an integer >= 1, got 0"),
        ({"operator": "matmul", "n": 1, "k": 1, "m": 1, "layout": "XX"}, "layout must be one of NN, NT, TN, TT, got 'XX'"),
        ({"operator": "no_such_module:Op"}, "operator 'no_such_module:Op': No module named 'no_such_module'"),
        ({"operator": "test_tasks:Nothing"}, "operator 'test_tasks:Nothing': module 'test_tasks' has no attribute 'Nothing'"),
        ({"operator": "json:dumps"}, "operator 'json:dumps': it is no subclass of nni_tensor_tuners.tasks.Task"),
    ):
        with pytest.raises(ValueError, match=message):
            from_dict(data)
    with pytest.raises(ValueError, match="unknown workload 'mm9'; allowed: mm1, mm2, mm3, bmm1"):
        get_task("mm9")


@dataclass(frozen=True)
class Doubled(Matmul):
    """An operator that is not in the table."""

    operator = "test_tasks:Doubled"


def test_an_operator_from_outside_is_named_by_its_module():
    task = Doubled(2, 3, 4)
    assert type(from_dict(task.to_dict())) is Doubled and from_dict(task.to_dict()) == task
    assert described(["test_tasks:Doubled", "--n", "2", "--k", "3", "--m", "4"], ["test_tasks:Doubled"]) == task


@pytest.mark.parametrize("name", [name for name, operator in OPERATORS.items() if issubclass(operator, TemplateTask)])
def test_every_operator_keeps_the_contract(name):
    """What the rest relies on, of any operator in the table; a shape of it that is small comes from its defaults and ones."""
    operator = OPERATORS[name]
    dimensions = int(name[4]) if name.startswith("conv") else None
    arguments = [name]
    for option in operator.__dataclass_fields__.values():
        if option.default.__class__.__name__ == "_MISSING_TYPE":
            arguments += [f"--{option.name.replace('_', '-')}", *["4"] * (dimensions if option.type is tuple else 1)]
    task = described(arguments)
    assert isinstance(task, Task) and task.operator == name and isinstance(task.flop, int) and task.flop > 0
    assert len(task.buffers) == len(task.shapes) and hash(task) == hash(from_dict(task.to_dict()))
    inputs = task.inputs()
    assert [array.shape for array in inputs] == [tuple(shape) for shape in task.shapes[:-1]]
    assert all((a == b).all() for a, b in zip(inputs, task.inputs())) and (inputs[0] != task.inputs(1)[0]).any()
    expected, out = task.reference(*inputs), np.full(task.shapes[-1], np.nan, np.float32)
    assert expected.shape == tuple(task.shapes[-1]) and task.reference(*inputs, out=out) is out
    np.testing.assert_array_equal(out, expected)
    spaces = [task.search_space(GENERIC[kind]) for kind in KINDS]
    assert spaces[0] == spaces[1]  # one file serves both
    for kind in KINDS:
        assert spaces[0].items() <= task.search_space(GENERIC[kind], extended=True).items()
        assert task.constraints(GENERIC[kind])
    with pytest.raises(ValueError, match=f"no template for {name} on tpu; there are those for cuda, cpu"):
        task.search_space(replace(GENERIC["cpu"], kind="tpu"))


def test_an_id_tells_tasks_apart_and_is_the_same_everywhere():
    ids = {task.id for task in WORKLOADS.values()}
    assert len(ids) == len(WORKLOADS)
    assert get_task("mm1").id == from_dict(json.loads(json.dumps(get_task("mm1").to_dict()))).id == "matmul-6c62e59b"
    assert replace(get_task("c2"), batch=8).id != get_task("c2").id


def test_naming_a_task_loads_neither_tvm_nor_numpy():
    """Trials import this while another one times."""
    modules = "nni_tensor_tuners.tasks.arguments, nni_tensor_tuners.tasks.device"
    code = f"import {modules}, sys; print({{'tvm', 'numpy'}} & {{*sys.modules}})"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


def described(arguments, operators=tuple(OPERATORS), read=task_of):
    """The task of a command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("workload", nargs="?")
    add_shape(parser, operators)
    return read(parser.parse_args(arguments), operators) if read is task_of else read(parser.parse_args(arguments))


CONVS = ("conv1d", "conv2d", "conv3d")


@pytest.mark.parametrize(
    "arguments, operators, task",
    [
        (["MM1"], tuple(OPERATORS), WORKLOADS["mm1"]),
        (["mm1", "--n", "8", "--layout", "TT"], ("matmul",), Matmul(8, 1024, 1024, "TT")),
        ("--n 2 --k 3 --m 4".split(), ("matmul",), Matmul(2, 3, 4)),
        ("matmul --n 2 --k 3 --m 4".split(), tuple(OPERATORS), Matmul(2, 3, 4)),
        (
            "--batch 1 --in-channels 2 --image 5 5 --out-channels 4 --kernel 3 --padding 0 --transposed".split(),
            CONVS,
            Conv(1, 2, (5, 5), 4, 3, transposed=True),
        ),
    ],
)
def test_a_command_line_describes_a_task(arguments, operators, task):
    assert described(arguments, operators) == task


@pytest.mark.parametrize(
    "arguments, operators, message",
    [
        (["mm9"], ("matmul",), "unknown operator or workload 'mm9'; allowed: mm1, mm2, mm3, matmul"),
        (["c1"], ("matmul",), "unknown operator or workload 'c1'; allowed: mm1, mm2, mm3, matmul"),
        ([], ("matmul",), "matmul: give --n and --k and --m, or name a workload"),
        ([], CONVS, "conv1d or conv2d or conv3d: give --batch and --in-channels and --image"),
        ([], tuple(OPERATORS), "name a workload or an operator"),
        (["matmul", "--b", "4"], tuple(OPERATORS), "matmul: there is no --b; its shape: --n, --k, --m, --layout"),
        (
            "conv1d --batch 1 --in-channels 2 --image 5 5 --out-channels 4 --kernel 3".split(),
            CONVS,
            "conv1d: of this shape it is conv2d",
        ),
    ],
)
def test_a_command_line_that_describes_none_is_one_line(arguments, operators, message):
    with pytest.raises(ValueError) as error:
        described(arguments, operators)
    assert message in str(error.value)


@pytest.mark.parametrize(
    "arguments, trial, label",
    [
        ("mm1", "mm1", "mm1"),
        ("bmm1 --b 6 --layout NT", "bmm1 --layout NT --b 6", "bmm1-layoutnt-b6"),
        ("matmul --n 2 --k 3 --m 4", "matmul --n 2 --k 3 --m 4", "matmul-n2-k3-m4"),
        (
            "conv2d --batch 1 --in-channels 2 --image 5 6 --out-channels 4 --kernel 3 --transposed",
            "conv2d --batch 1 --in-channels 2 --image 5 6 --out-channels 4 --kernel 3 3 --transposed",
            "conv2d-batch1-inchannels2-image5x6-outchannels4-kernel3x3-transposed",
        ),
    ],
)
def test_a_task_s_trials_have_arguments_that_name_it(arguments, trial, label):
    task, found, name = described(arguments.split(), read=named_task)
    assert (found, name) == (trial, label)
    assert described(found.split()) == task


def test_cuda_limits_follow_the_compute_capability():
    assert limits_of("sm_30") == {"registers": 63, "shared_bytes_optin": 49152, "grid_x": 2**31 - 1}
    assert limits_of("sm_35") == limits_of("sm_61") == {**limits_of("sm_30"), "registers": 255}
    for arch, kib in {"70": 96, "75": 64, "80": 163, "86": 99, "90a": 227, "100": 227, "120": 99}.items():
        assert limits_of(f"sm_{arch}")["shared_bytes_optin"] == kib * 1024
    assert limits_of("sm_20")["grid_x"] == 65535
    assert GENERIC["cuda"] == replace(GENERIC["cuda"], **limits_of("sm_35"))
    old = {"kind": "cuda", "name": "what earlier versions wrote", "identity": "x", "arch": "sm_90"}
    generic = GENERIC["cuda"]
    assert replace(Device(**old), name=generic.name, identity="cuda", arch=generic.arch) == generic


class Driver:
    """libcuda of a machine with one GPU, as far as it is asked; ``said`` has what it says of an attribute."""

    def __init__(self, **said):
        self.said = {1: 1024, 8: 49152, 97: 166912, 5: 2**31 - 1, 6: 65535, 75: 9, 76: 0}
        self.said.update({int(attribute[1:]): value for attribute, value in said.items()})

    def cuInit(self, flags):
        return 0

    cuDeviceGet = cuDeviceGetName = cuDeviceGetUuid = lambda self, *_: 0

    def cuDeviceGetAttribute(self, value, attribute, device):
        value._obj.value = self.said[attribute] or 0
        return 0 if self.said[attribute] is not None else 1


def test_a_gpu_s_limits_are_what_its_driver_says(monkeypatch):
    """A part of a card (MIG, or a driver that keeps some for itself) may have less than its compute capability."""
    monkeypatch.setattr(devices.ctypes, "CDLL", lambda name: Driver())
    found = devices.find_device("cuda")
    assert (found.arch, found.shared_bytes_optin, found.registers, found.threads) == ("sm_90", 166912, 255, 1024)
    monkeypatch.setattr(devices.ctypes, "CDLL", lambda name: Driver(_97=None))  # one too old to know of it
    assert devices.find_device("cuda").shared_bytes_optin == 232448
    monkeypatch.setattr(devices.ctypes, "CDLL", lambda name: Driver(_75=None))
    assert devices.find_device("auto").kind == "cpu"
