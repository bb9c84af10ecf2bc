import math
import random
import shutil
from dataclasses import replace

import pytest
import tvm
from cuda_emulator import run as emulate
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm.support import nvcc

from nni_tensor_tuners import SearchSpace
from nni_tensor_tuners.measure import ErrorCode, build, measure
from nni_tensor_tuners.measure.worker import wrong_answer
from nni_tensor_tuners.space.constraints import Constraint
from nni_tensor_tuners.tasks import WORKLOADS, cuda_limits
from nni_tensor_tuners.tasks import cuda as cuda_templates
from nni_tensor_tuners.tasks.conv import Conv
from nni_tensor_tuners.tasks.device import GENERIC, Device, find_device, limits_of
from nni_tensor_tuners.tasks.matmul import LAYOUTS, BatchMatmul, Matmul, cuda
from nni_tensor_tuners.tasks.target import target_of

NVCC = pytest.mark.skipif(
    shutil.which("nvcc") is None, reason="nvcc is not installed: the CUDA templates are not compiled to cubin"
)
EXTRAS = {"vector": 4, "pad": 4, "stages": 2}


def tiles(text, unroll=(0, 0), **extras):
    """A convolution's configuration: "f 1 1 8 1, x ..." and (auto_unroll_max_step, unroll_explicit)."""
    factors = ((name, [*map(int, values)]) for name, *values in map(str.split, text.split(",")))
    step, explicit = unroll
    return {f"tile_{name}": values for name, values in factors} | dict(
        auto_unroll_max_step=step, unroll_explicit=explicit, **extras
    )


# Small and odd shapes, with every kind of split: virtual threads, several stages of K, primes, a single thread.
CASES = {
    "matmul NN": (Matmul(64, 32, 64), {"X": [2, 2, 4, 4], "Y": [4, 2, 4, 2], "K": [8, 2, 2]}),
    "matmul odd": (Matmul(30, 15, 14), {"X": [5, 1, 3, 2], "Y": [7, 1, 2, 1], "K": [5, 3, 1]}),
    "matmul NT": (Matmul(16, 8, 12, "NT"), {"X": [1, 2, 4, 2], "Y": [2, 1, 3, 2], "K": [2, 2, 2]}),
    "matmul TN": (Matmul(12, 10, 16, "TN"), {"X": [3, 1, 2, 2], "Y": [1, 2, 4, 2], "K": [1, 5, 2]}),
    "matmul TT": (Matmul(9, 7, 5, "TT"), {"X": [1, 3, 3, 1], "Y": [1, 1, 5, 1], "K": [7, 1, 1]}),
    "matmul column": (Matmul(7, 3, 1), {"X": [7, 1, 1, 1], "Y": [1, 1, 1, 1], "K": [1, 1, 3]}),
    "matmul extended": (
        Matmul(32, 32, 64, "TN"),
        {"X": [2, 1, 4, 4], "Y": [4, 2, 4, 2], "K": [4, 4, 2], **EXTRAS, "unroll": 64},
    ),
    "batch_matmul": (
        BatchMatmul(16, 12, 8, "NT", 6),
        {"B": [2, 3], "X": [2, 2, 2, 2], "Y": [1, 2, 4, 1], "K": [3, 2, 2]},
    ),
    "batch_matmul extended": (
        BatchMatmul(16, 16, 8, "NN", 4),
        {"B": [1, 4], "X": [2, 2, 2, 2], "Y": [1, 2, 4, 1], "K": [4, 2, 2], **EXTRAS, "unroll": 0},
    ),
    # Here TVM leaves out a barrier unless `bind_unit_loop` prevents it.
    "conv1d": (Conv(1, 1, (4,), 8, 3, 1, 1), tiles("f 1 1 8 1, x 1 1 4 1, rc 1 1, rx 3 1", (512, 1))),
    "conv2d": (
        Conv(2, 6, (9, 8), 8, 3, (2, 1), 1),
        tiles("f 2 2 2 1, y 1 5 1 1, x 2 1 2 2, rc 3 2, ry 1 3, rx 3 1"),
    ),
    "conv2d extended": (
        Conv(1, 8, (8, 8), 8, 1),
        tiles("f 1 2 2 2, y 2 1 4 1, x 1 2 2 2, rc 2 4, ry 1 1, rx 1 1", (512, 1), **EXTRAS),
    ),
    "conv2d depthwise": (
        Conv(1, 6, (7, 7), 6, 3, 2, 1, 1, 6),
        tiles("f 1 1 1 1, y 2 1 2 1, x 1 1 4 1, rc 1 1, ry 1 3, rx 1 3, g 2 3", (512, 1)),
    ),
    "conv2d grouped transposed": (
        Conv(2, 6, (5, 4), 4, (3, 2), (2, 3), 1, (2, 1), 2, True, 1),
        tiles("f 1 1 2 1, y 3 2 1 2, x 1 1 10 1, rc 3 1, ry 1 3, rx 2 1, g 1 2", pad=4, stages=2),
    ),
    "conv3d dilated": (
        Conv(1, 2, (5, 4, 6), 3, (2, 1, 3), 1, (1, 0, 1), (2, 1, 1)),
        tiles("f 1 1 3 1, z 1 1 1 5, y 2 1 2 1, x 1 3 2 1, rc 2 1, rz 1 2, ry 1 1, rx 1 3", (512, 1)),
    ),
}


def gpu():
    try:
        return find_device("cuda")
    except ValueError:
        return None


def space_of(task, extended=False, device=GENERIC["cuda"]):
    return SearchSpace.from_json(task.search_space(GENERIC["cuda"], extended), task.constraints(device, extended))


def instantiated(workload, config, device=GENERIC["cuda"]):
    return build.instantiate(workload, config, device, target_of(device))


def source_of(module, device=GENERIC["cuda"]):
    return build.device_source(build.compile_module(module, target_of(device)))


def emulated(cases, folder, change=lambda source: source, device=GENERIC["cuda"]):
    """What is wrong with each (workload, config): the text of `wrong_answer`, None where it agrees with NumPy."""
    kernels, references = [], []
    for workload, config in cases:
        module, inputs = instantiated(workload, config, device), workload.inputs()
        threads, source = cuda_limits.thread_extents(module), change(source_of(module, device))
        _, dynamic = shared_bytes(module, device)
        kernels.append((source, threads, dict(zip(workload.buffers, inputs)), workload.shapes[-1], dynamic))
        references.append(workload.reference(*inputs))
    results = zip(emulate(kernels, folder), references, cases)
    return [
        next(filter(None, (wrong_answer(z, reference, workload.tolerance) for z in both)), None)
        for both, reference, (workload, _) in results
    ]


@pytest.mark.parametrize("name", CASES)
def test_the_kernel_gives_numpy_s_answer(name, tmp_path):
    """On the GPU where there is one; else its generated code runs on the CPU."""
    workload, config = CASES[name]
    device = gpu()
    if device is not None:
        result = measure(workload, config, device)
        assert (ErrorCode(result["error_code"]), result["error"]) == (ErrorCode.NO_ERROR, "")
        return
    assert emulated([(workload, config)], tmp_path) == [None]


def _three(values, dimensions):
    return st.tuples(*[values] * dimensions)


@st.composite
def workloads(draw):
    """Any operator over small, odd or prime extents."""
    if draw(st.booleans()):
        n, k, m = draw(_three(st.sampled_from([1, 2, 3, 4, 7, 8, 9, 12, 16, 24]), 3))
        layout, b = draw(st.sampled_from(LAYOUTS)), draw(st.integers(0, 4))
        return BatchMatmul(n, k, m, layout, b) if b else Matmul(n, k, m, layout)
    dimensions, transposed = draw(st.integers(1, 3)), draw(st.integers(0, 3)) == 0
    groups = draw(st.sampled_from([1, 1, 2, 3, 4]))
    into, out_of = (
        (1, 1) if draw(st.integers(0, 3)) == 0 else draw(st.tuples(st.integers(1, 5), st.sampled_from([1, 2, 3, 4, 6, 8])))
    )
    kernel = draw(_three(st.sampled_from([1, 2, 3]), dimensions))
    stride, dilation = (draw(_three(st.sampled_from([1, 1, 2, 3]), dimensions)) for _ in range(2))
    padding = draw(_three(st.integers(0, 2), dimensions))
    # The least image that the kernel fits, either way, and a little more.
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, kernel)]
    more = draw(_three(st.sampled_from([0, 1, 3, 5, 6] if dimensions < 3 else [0, 1, 2]), dimensions))
    image = tuple(max(1, r - 2 * p, 2 * p - r + 2 if transposed else 1) + m for r, p, m in zip(reach, padding, more))
    extra = tuple(draw(st.integers(0, s - 1)) for s in stride) if transposed else 0
    batch = draw(st.integers(1, 3))
    return Conv(batch, groups * into, image, groups * out_of, kernel, stride, padding, dilation, groups, transposed, extra)


@settings(max_examples=10, deadline=None, derandomize=True, database=None)
@given(st.lists(st.tuples(workloads(), st.booleans(), st.integers(0, 99)), min_size=8, max_size=8))
def test_any_kernel_gives_numpy_s_answer_and_needs_the_memory_that_the_constraints_say(tmp_path_factory, drawn):
    """Configurations that the constraints allow pass the static limits, and the emulator; eight share one compilation."""
    cases = []
    for workload, extended, seed in drawn:
        space = space_of(workload, extended)
        config = space.sample(random.Random(seed))
        (limit,) = (constraint.text for constraint in space.constraints if constraint.text.startswith("4 * "))
        static, dynamic = shared_bytes(instantiated(workload, config))
        as_said = Constraint(limit.replace("<= 49152", f"== {static}"), space.names)
        assert dynamic == 0 and as_said.holds(config), (workload, config, static)
        cases.append((workload, config))
    assert [case for case in zip(emulated(cases, tmp_path_factory.mktemp("kernels")), cases) if case[0] is not None] == []


def shared_bytes(module, device=GENERIC["cuda"]):
    """Shared memory that a scheduled module's kernel allocates, (static, dynamic)."""
    return cuda_limits.shared_bytes(cuda_limits.lowered(module, target_of(device)))


# Of a GPU that gives a block hardly any shared memory unasked, so that small kernels ask.
ASKING = replace(GENERIC["cuda"], arch="sm_90", shared_bytes=16, shared_bytes_optin=232448)


def test_kernels_whose_shared_memory_is_allocated_at_the_launch_give_numpy_s_answer(tmp_path):
    """All cases in one compilation."""
    cases = list(CASES.values())
    for case in cases:
        asked, unasked = shared_bytes(instantiated(*case, ASKING), ASKING), shared_bytes(instantiated(*case))
        assert asked[0] == 0 and unasked[0] <= asked[1] <= unasked[0] + cuda_templates.ALIGNMENT, (case, asked, unasked)
    assert emulated(cases, tmp_path, device=ASKING) == [None] * len(cases)


HOPPER = Device("cuda", "any GPU of sm_90", "cuda", arch="sm_90", **limits_of("sm_90"))

# Configurations, and the bytes of shared memory that they take: more than any device gives unasked.
LARGE = {
    "mm1": ({"X": [4, 2, 16, 4], "Y": [8, 2, 16, 4], "K": [8, 64, 2]}, 131072),
    "bmm1": ({"B": [960, 1], "X": [1, 2, 16, 4], "Y": [1, 1, 16, 4], "K": [1, 64, 2]}, 98304),
    "resnet18-c2": (tiles("f 1 1 16 4, y 4 1 7 2, x 7 1 8 1, rc 2 32, ry 1 3, rx 1 3"), 94208),
}


def test_constraints_are_those_of_the_device():
    for name, (config, size) in LARGE.items():
        task = WORKLOADS[name]
        for extended in (False, True):
            extras = {
                key: spec["_value"][0]
                for key, spec in task.search_space(GENERIC["cuda"], extended).items()
                if key not in config
            }
            whole = {**config, **extras}
            assert space_of(task, extended, HOPPER).contains(whole) and not space_of(task, extended).contains(whole)
            static, dynamic = shared_bytes(instantiated(task, whole, HOPPER), HOPPER)
            assert (static, dynamic) == (0, size), name
        with pytest.raises(ValueError, match="max_shared_memory_per_block <= 49152"):
            instantiated(task, config)
    too_large = {"X": [2, 2, 32, 4], "Y": [4, 2, 32, 4], "K": [2, 128, 4]}
    assert not space_of(WORKLOADS["mm1"], device=HOPPER).contains(too_large)
    with pytest.raises(ValueError, match="max_shared_memory_per_block <= 232448"):
        instantiated(WORKLOADS["mm1"], too_large, HOPPER)
    kepler = replace(GENERIC["cuda"], arch="sm_30", **limits_of("sm_30"))
    for x, y, fits in ((1, 8, True), (2, 16, False)):  # a thread of 25 and of 68 registers
        config = {"X": [32 // x, 1, 16, x], "Y": [64 // y, 1, 16, y], "K": [64, 8, 2]}
        assert space_of(WORKLOADS["mm1"], device=kepler).contains(config) is fits
        assert space_of(WORKLOADS["mm1"]).contains(config)


def test_a_grid_as_small_as_the_first_ones_bounds_the_blocks():
    fermi = replace(GENERIC["cuda"], grid_x=65535)
    for task, name in ((Matmul(1, 1, 131072), "Y"), (Conv(1, 1, (131072,), 1, 1), "tile_x")):
        limits = task.constraints(fermi)
        assert set(limits) - set(task.constraints(GENERIC["cuda"])) == {f"{name}[0] <= 65535"}


def test_the_target_has_the_device_s_numbers():
    target = target_of(replace(HOPPER, threads=512, shared_bytes=1024))
    assert (target.attrs["max_threads_per_block"], target.attrs["max_shared_memory_per_block"]) == (512, 1024)


def test_the_emulator_notices_a_missing_barrier_and_an_index_beyond_an_array(tmp_path):
    cases = [CASES["conv2d"]]
    for barrier in range(2):

        def without_barrier(source, barrier=barrier):
            before, *after = source.split("__syncthreads();")
            assert len(after) == 2
            return before + "".join(("" if i == barrier else "__syncthreads();") + part for i, part in enumerate(after))

        assert emulated(cases, tmp_path, without_barrier) != [None]
    with pytest.raises(RuntimeError, match="a kernel failed"):
        emulated(cases, tmp_path, lambda source: source.replace("W_shared_ptr[(", "W_shared_ptr[10000 + ("))


@pytest.mark.parametrize("name", ["matmul extended", "batch_matmul extended", "conv2d extended"])
def test_vectors_are_used(name):
    assert "*(float4*)" in source_of(instantiated(*CASES[name]))


@pytest.mark.parametrize("name", ["matmul NN", "batch_matmul", "conv2d", "conv2d depthwise"])
def test_a_configuration_without_extras_is_one_where_they_do_nothing(name):
    workload, config = CASES[name]
    neutral = {"vector": 1, "pad": 0, "stages": 1} | ({} if isinstance(workload, Conv) else {"unroll": cuda.UNROLL_STEPS})
    tvm.ir.assert_structural_equal(instantiated(workload, config), instantiated(workload, {**config, **neutral}))
    paper, extended = (workload.search_space(GENERIC["cuda"], flavour) for flavour in (False, True))
    assert paper.items() < extended.items()


def test_the_cpu_template_has_no_extended_space():
    task, device = WORKLOADS["mm1"], GENERIC["cpu"]
    assert (
        task.search_space(GENERIC["cpu"], extended=True)
        == task.search_space(GENERIC["cpu"])
        == task.search_space(GENERIC["cuda"])
    )
    assert task.constraints(device, extended=True) == task.constraints(device)


@pytest.mark.parametrize("extended", [False, True])
def test_configurations_within_the_constraints_pass_the_static_limits(extended):
    for workload in WORKLOADS.values():
        space, rng = space_of(workload, extended), random.Random(0)
        for _ in range(6):
            instantiated(workload, space.sample(rng))


CONV = tiles("f 4 1 16 1, y 7 1 8 1, x 7 1 8 1, rc 64 1, ry 3 1, rx 3 1")


@pytest.mark.parametrize(
    "name, config, limit",
    [
        ("mm1", {"X": [4, 1, 32, 4], "Y": [4, 1, 64, 4], "K": [128, 4, 2]}, "max_threads_per_block <= 1024"),
        ("mm1", {"X": [8, 2, 8, 4], "Y": [16, 2, 8, 4], "K": [2, 128, 4]}, "max_shared_memory_per_block <= 49152"),
        ("resnet18-c2", CONV | {"tile_f": [1, 1, 64, 1]}, "max_threads_per_block <= 1024"),
        (
            "resnet18-c2",
            CONV | {"tile_f": [1, 1, 4, 16], "tile_rc": [1, 64], "tile_ry": [1, 3]},
            "max_shared_memory_per_block <= 49152",
        ),
        ("resnet18-c2", CONV | {"tile_f": [1, 32, 2, 1], "tile_y": [7, 4, 2, 1]}, "max_vthread <= 64"),
        ("c2", CONV | tiles("f 192 1 1 1, y 1 1 27 1, x 1 1 27 1, ry 5 1, rx 5 1"), "blockIdx.z <= 65535"),
    ],
)
def test_a_kernel_beyond_a_limit_is_refused_before_it_is_compiled(name, config, limit):
    workload = WORKLOADS[name]
    assert not space_of(workload).contains(config)
    with pytest.raises(ValueError, match=limit):
        instantiated(workload, config)


def test_where_no_block_has_a_warp_fewer_threads_do():
    for workload in (
        Conv(1, 1, (1,), 1, 1),
        Conv(1, 1, (7, 5), 1, (7, 5)),
        Conv(2, 3, (3, 1, 1), 3, 1, groups=3),
        Matmul(1, 5, 7),
    ):
        space = space_of(workload)
        assert any(space.is_legal(point) for point in space.points(random.Random(0)))


# H = W, input channels, kernel, stride, number of configurations.
NOSE_TABLE = [
    (224, 3, 7, 2, 3_763_200),
    (56, 64, 3, 1, 90_316_800),
    (56, 64, 1, 1, 903_168),
    (56, 64, 3, 2, 22_579_200),
    (56, 64, 1, 2, 56_448),
    (28, 128, 3, 1, 36_864_000),
    (28, 128, 3, 2, 5_898_240),
    (28, 128, 1, 2, 1_474_560),
    (14, 256, 3, 1, 9_123_840),
    (14, 256, 3, 2, 570_240),
    (14, 256, 1, 2, 3_564_000),
    (7, 512, 3, 1, 844_800),
]


@pytest.mark.parametrize("row", range(12))
def test_the_space_has_as_many_configurations_as_the_nose_paper_s_table_ii_says(row):
    """All twelve agree if the table is read in its own way, which is not ResNet-18's in two respects.

    It pads 1 x 1 convolutions by 1 as it prints, which makes their output two rows larger, or one at stride 2 (C3, C5, C8,
    C11); and it factorises as many output channels as there are input channels (C1, C4, C5, C7, C8, C10, C11). The workloads
    resnet18-c1 to -c12 are those of the network, so their spaces have other sizes wherever one of the two changes anything.
    """
    image, channels, kernel, stride, size = NOSE_TABLE[row]
    padding = 3 if kernel == 7 else 1
    assert space_of(Conv(1, channels, (image, image), channels, kernel, stride, padding)).size == size
    real = WORKLOADS[f"resnet18-c{row + 1}"]
    as_in_table = (real.out_channels, real.padding) == (channels, (padding, padding))
    assert (space_of(real).size == size) == as_in_table


def test_the_space_of_a_convolution_is_that_of_topi_s_template():
    space = WORKLOADS["resnet18-c2"].search_space(GENERIC["cuda"])
    names = ["tile_f", "tile_y", "tile_x", "tile_rc", "tile_ry", "tile_rx", "auto_unroll_max_step", "unroll_explicit"]
    assert list(space) == names
    assert [space[name]["_value"] for name in names[:6]] == [[64, 4], [56, 4], [56, 4], [64, 2], [3, 2], [3, 2]]
    assert math.prod(len(space[name]["_value"]) for name in names[6:]) == 6


@NVCC
@pytest.mark.parametrize("name, arch", [("mm1", "sm_80"), ("mm1", "sm_90"), ("bmm1", "sm_90"), ("resnet18-c2", "sm_90")])
@pytest.mark.parametrize("extended", [False, True])
def test_the_templates_compile_to_cubin(name, arch, extended):
    workload, device = WORKLOADS[name], Device("cuda", arch, "cuda", arch=arch)
    module = instantiated(workload, space_of(workload, extended).sample(random.Random(0)), device)
    with target_of(device):
        cubin = nvcc.compile_cuda(source_of(module, device), target_format="cubin", arch=arch, compiler="nvcc")
    assert bytes(cubin[:4]) == b"\x7fELF"


@NVCC
@pytest.mark.parametrize("name", ["mm1", "resnet18-c2"])
def test_a_kernel_that_asks_for_shared_memory_compiles_to_cubin(name):
    task, (config, _) = WORKLOADS[name], LARGE[name]
    source = source_of(instantiated(task, config, HOPPER), HOPPER)
    assert "extern __shared__" in source
    with target_of(HOPPER):
        cubin = nvcc.compile_cuda(source, target_format="cubin", arch="sm_90", compiler="nvcc")
    assert bytes(cubin[:4]) == b"\x7fELF"
