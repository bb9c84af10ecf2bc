"""Models read, lowered, and split into tasks."""

import random
import shutil
from dataclasses import replace

import numpy as np
import pytest
import tvm
from hypothesis import assume, given
from hypothesis import strategies as st
from model_answers import INPUT, MODELS, SMALL, answer, lowered_beside, scheduled, tasks_of, untuned

from nni_tensor_tuners import SearchSpace
from nni_tensor_tuners.measure import measure
from nni_tensor_tuners.networks.prepare import split
from nni_tensor_tuners.tasks.device import GENERIC, find_device, limits_of
from nni_tensor_tuners.tasks.network import NETWORKS, lower, models, pack, winograd
from nni_tensor_tuners.tasks.program import Program
from nni_tensor_tuners.tasks.program.load import save
from nni_tensor_tuners.tasks.shared import shared_folder
from nni_tensor_tuners.tasks.target import target_of

CPU = find_device("cpu")

# Multiplications and additions in 10^9 as the networks' papers and torchvision's tables have them, counted as two.
GFLOP = {"alexnet": 1.43, "resnet18": 3.63, "mobilenet-v2": 0.60, "bert-4": 7.6}


@pytest.mark.parametrize("name", GFLOP)
def test_networks_are_those_of_the_papers(name):
    tasks = split(name, None, CPU)
    total = sum(tvm.s_tir.analysis.estimate_tir_flops(tvm.IRModule({"main": f})) * count for _, f, count in tasks)
    assert total / 1e9 == pytest.approx(GFLOP[name], rel=0.05)


@pytest.mark.parametrize("name", [name for name in NETWORKS if name not in GFLOP])
def test_every_network_splits_into_tasks_each_once(name):
    if name == "bert":
        name = "bert(length=16)"
    tasks = split(name, None, CPU)
    names = [task for task, _, _ in tasks]
    assert len(set(names)) == len(names) > 1


def test_a_task_that_a_network_runs_twice_is_one_task_that_counts_twice():
    counts = {name: count for name, _, count in split(SMALL, None, CPU)}
    assert sorted(count for name, count in counts.items() if "conv2d" in name) == [1, 2]
    assert all(count == 1 for name, count in counts.items() if "conv2d" not in name)


def test_bounds_and_shortcuts_are_fused_and_images_lie_channels_last_but_for_the_first_layer_s():
    module = lower.lowered(models.read(SMALL), CPU)
    shapes = {name: [tuple(map(int, buffer.shape)) for buffer in f.params] for name, f, _ in lower.tasks(module, CPU)}
    (first,) = (each for name, each in shapes.items() if "conv2d" in name and "maximum" in name and "minimum" in name)
    block = pack.block_of(32, CPU.vector_lanes)
    assert first == [(1, 3, 16, 16), (32 // block, 3, 3, 3, block), (1, 16, 16, 32)]
    # Nothing turns an image about.
    assert not any("transpose" in name or "permutation" in name for name in shapes)


def test_a_lowered_network_computes_what_the_model_does():
    expected = answer(untuned(SMALL), INPUT)
    built = lower.build(lower.lowered(models.read(SMALL), CPU), [], CPU)
    np.testing.assert_allclose(answer(built, INPUT), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "arguments",
    [
        "",
        "kernel=(3,3),output_padding=1",
        "kernel=(2,3),strides=3,padding=0",  # a rest that no tap has
        "kernel=(5,5),strides=1,padding=2,outer=3",
        "image=(7,),kernel=(6,),strides=4",
        "kernel=(4,5),strides=3",  # outputs that no stride divides
        "image=(3,4,5),kernel=(3,2,4)",
        "outer=3,inner=32",  # vectors of input channels
        "groups=2",
        "dilation=2",
    ],
)
def test_transposed_convolutions_multiply_by_no_zeros(arguments):
    model, module, answers, expected = lowered_beside(f"{MODELS}:transposed({arguments})", CPU)
    np.testing.assert_allclose(answers([]), expected, rtol=1e-4, atol=1e-5)
    if "groups" in arguments or "dilation" in arguments:
        return
    for place in (0, -1):  # padding inlined, and stored
        chosen = scheduled(tasks_of(module, CPU).values(), CPU, lambda task, device: (task.defaults(device) or [None])[place])
        np.testing.assert_allclose(answers(chosen), expected, rtol=1e-4, atol=1e-5)
    # One task, which writes what follows, too; it multiplies so often as taps meet inputs, borders and rounded kernels aside, and
    # may add up the lanes of a vector.
    (flop,) = [
        tvm.s_tir.analysis.estimate_tir_flops(tvm.IRModule({"main": each}))
        for name, each, _ in lower.tasks(module, CPU)
        if "conv" in name
    ]
    attributes = next(b.value for block in model["main"].body.blocks for b in block.bindings if hasattr(b.value, "attrs"))
    strides = [int(each) for each in attributes.attrs.strides]
    kernel = [int(each) for each in attributes.args[1].ty.shape]
    output = [int(each) for each in attributes.ty.shape]
    taps = np.prod([-(-extent // stride) for extent, stride in zip(kernel[2:], strides)])
    assert 2 * np.prod(output) * kernel[0] * taps <= flop <= 2 * np.prod(output) * (kernel[0] * taps + 2 + CPU.vector_lanes)


@pytest.mark.parametrize(
    "arguments",
    [
        "",
        "image=(8,),ceil_mode=True",
        "image=(5,4,6),strides=1",
        "kernel=[2,5],padding=[1,4,0,0],strides=[3,1]",
        "image=(3,3),kernel=5,padding=4",  # windows wider than the image
        "dilation=2",
        "kernel=2,padding=[3,3,0,0]",  # a window of padding alone
    ],
)
def test_the_largest_of_a_window_is_found_without_padding(arguments):
    _, module, answers, expected = lowered_beside(f"{MODELS}:pooling({arguments})", CPU)
    for schedules in ([], scheduled(tasks_of(module, CPU).values(), CPU)):
        np.testing.assert_array_equal(answers(schedules), expected)
    padded = any("if_then_else" in function.script() for _, function, _ in lower.tasks(module, CPU))
    assert padded == ("dilation" in arguments or "padding=[3" in arguments)


@given(*map(st.integers, (1, 1, 1, 0, 0, 1), (6, 5, 3, 4, 4, 2)))
def test_taps_that_meet_padding_alone_are_left_out(extent, taps, stride, before, after, dilation):
    count = (extent + before + after - (taps - 1) * dilation - 1) // stride + 1
    assume(count > 0)
    kernel = np.random.default_rng(taps).uniform(1, 2, (taps, 1, 1))
    cut, padding = pack.that_meet([extent], [count], kernel, [stride], [before, after], [dilation])

    def convolved(kernel, before, after):
        data = np.pad(np.arange(1.0, extent + 1), (before, after))
        last = len(data) - (len(kernel) - 1) * dilation
        return [
            sum(data[at + tap * dilation] * weight.item() for tap, weight in enumerate(kernel)) for at in range(0, last, stride)
        ]

    assert convolved(cut, *padding) == pytest.approx(convolved(kernel, before, after))
    met = [tap for tap in range(taps) if any(0 <= o * stride + tap * dilation - before < extent for o in range(count))]
    if met and dilation == 1:
        assert len(cut) == met[-1] - met[0] + 1


@pytest.mark.parametrize("arguments", ["", "outer=1,kernel=(5,1)", "strides=2", "outer=2,dilation=2"])
def test_few_outputs_are_sums_over_vectors_of_channels(arguments):
    text = f"{MODELS}:to_few({arguments})"
    module = lower.lowered(models.read(text), CPU)
    data = np.random.default_rng(0).uniform(-1, 1, (2, 32, 9, 10)).astype("float32")
    np.testing.assert_allclose(answer(lower.build(module, [], CPU), data), answer(untuned(text), data), rtol=1e-4, atol=1e-5)
    (name,) = (name for name, _, _ in lower.tasks(module, CPU) if "permut" not in name and "transpose" not in name)
    assert "conv2d" in name and "tanh" in name
    function = next(function for each, function, _ in lower.tasks(module, CPU) if each == name)
    assert "conv2d_lanes" in function.script()
    task = Program(str(save(function, shared_folder())))
    assert measure(task, task.default(CPU), CPU)["error_code"] == 0


@pytest.mark.parametrize("kernel, tile, error", [(3, 2, 1e-5), (3, 4, 1e-4), (4, 3, 1e-4), (5, 2, 1e-4)])
@pytest.mark.parametrize("image, padding", [("12 12", "1 1 1 1"), ("7 10", "0 2 1 0")])  # of whole tiles, and not
def test_winograd_s_way_computes_the_convolution(kernel, tile, error, image, padding):
    shape = f"2 {image} 32 48 {kernel} {padding}"
    assert tile in winograd.tiles_for(shape)
    model = winograd.alone(shape)
    assert winograd.fits(lower.channels_last(model, CPU), CPU.vector_lanes) == [shape]
    data = np.random.default_rng(0).uniform(-1, 1, (2, *map(int, image.split()), 32)).astype("float32")
    direct = lower.lowered(model, CPU)
    module = lower.lowered(model, CPU, {shape: tile})
    tasks = tasks_of(module, CPU)
    assert all(task.default(CPU) for task in tasks.values())
    expected = answer(lower.build(direct, [], CPU), data)
    assert (
        np.abs(answer(lower.build(module, scheduled(tasks.values(), CPU), CPU), data) - expected).max()
        <= error * np.abs(expected).max()
    )
    tiles = np.prod([-(-extent // tile) for extent in expected.shape[1:3]])
    assert tasks["winograd_products"].flop == 2 * 2 * tiles * (tile + kernel - 1) ** 2 * 32 * 48


def test_what_follows_a_convolution_is_computed_as_its_tiles_are_written():
    model = models.read(SMALL)
    (shape,) = winograd.fits(lower.channels_last(model, CPU), CPU.vector_lanes)
    assert shape == "1 16 16 32 32 3 1 1 1 1"
    module = lower.lowered(model, CPU, {shape: 4})
    names = {name: count for name, _, count in lower.tasks(module, CPU)}
    assert names["fused_winograd_output_add_add1_maximum"] == 2  # shift, shortcut, ReLU
    assert not [name for name in names if "add" in name and "winograd_output" not in name]
    np.testing.assert_allclose(answer(lower.build(module, [], CPU), INPUT), answer(untuned(SMALL), INPUT), rtol=1e-4, atol=1e-6)


def test_winograd_s_transforms_are_those_of_the_paper():
    of_input, of_kernel, of_output = (np.array(each) for each in winograd.transforms(4, 3))
    assert of_input[0].tolist() == [4, 0, -5, 0, 1, 0] and of_input[-1].tolist() == [0, 4, 0, -5, 0, 1]
    assert (24 * of_kernel[3]).tolist() == [1, 2, 4] and of_output[3].tolist() == [0, 1, -1, 8, -8, 1]
    rng = np.random.default_rng(0)
    for tile, kernel in ((2, 3), (4, 3), (3, 4), (2, 5), (3, 2)):
        of_input, of_kernel, of_output = (np.array(each) for each in winograd.transforms(tile, kernel))
        d, g = rng.uniform(-1, 1, tile + kernel - 1), rng.uniform(-1, 1, kernel)
        np.testing.assert_allclose(of_output @ ((of_kernel @ g) * (of_input @ d)), np.correlate(d, g), atol=1e-12)


def test_only_plain_convolutions_with_constant_weights_are_computed_so():
    def fits(text):
        return winograd.fits(lower.channels_last(models.read(text), CPU), CPU.vector_lanes)

    assert [each.split()[1:5] for each in fits("resnet18")] == [
        ["56", "56", "64", "64"],
        ["28", "28", "128", "128"],
        ["14", "14", "256", "256"],
        ["7", "7", "512", "512"],
    ]
    assert fits("mobilenet-v2") == []  # strides, groups, 1 x 1


# On a GPU, as far as it goes without one.


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed: nothing is compiled for a GPU")
def test_a_network_compiles_for_a_gpu(monkeypatch, tmp_path):
    monkeypatch.setenv("TVM_CUDA_COMPILE_MODE", "nvcc")
    device = replace(GENERIC["cuda"], arch="sm_90", **limits_of("sm_90"))
    module = lower.lowered(models.read(SMALL), device)
    name, function, _ = next(each for each in lower.tasks(module, device) if "conv2d" in each[0])
    task = Program(str(save(function, tmp_path)))
    space, settle, rng = SearchSpace.from_json(task.search_space(device)), task.settler(device), random.Random(0)
    config = next(filter(None, (settle(space.sample(rng)) for _ in range(2000))))
    # What it is measured by before the first trial.
    tvm.compile(task.module(task.default(device), device), target=target_of(device))
    scheduled = [(task.source, task.schedule(config, device))]
    built = lower.build(module, scheduled, device)  # the rest by TVM's default schedules
    assert "cuda_graph.run_or_capture" in built.as_text()  # kernels are launched as one
    built.export_library(str(tmp_path / "model.so"))
    assert (tmp_path / "model.so").stat().st_size > 0
