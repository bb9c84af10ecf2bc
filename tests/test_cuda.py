import random
import shutil

import numpy as np
import pytest
from cuda_emulator import run as emulate

from nni_tensor_tuners import SearchSpace
from nni_tensor_tuners.device import GENERIC, Device, find_device
from nni_tensor_tuners.measure import ErrorCode, measure
from nni_tensor_tuners.measure.worker import wrong_answer
from nni_tensor_tuners.schedules import get_template, matmul_cuda
from nni_tensor_tuners.workloads import WORKLOADS, Matmul

build = pytest.importorskip("nni_tensor_tuners.measure.build")

# Small and odd shapes, with every kind of split: virtual threads, several stages of K, primes, a single thread.
CASES = [
    (Matmul(64, 32, 64), {"X": [2, 2, 4, 4], "Y": [4, 2, 4, 2], "K": [8, 2, 2]}),
    (Matmul(30, 15, 14), {"X": [5, 1, 3, 2], "Y": [7, 1, 2, 1], "K": [5, 3, 1]}),
    (Matmul(16, 8, 12, "NT"), {"X": [1, 2, 4, 2], "Y": [2, 1, 3, 2], "K": [2, 2, 2]}),
    (Matmul(12, 10, 16, "TN"), {"X": [3, 1, 2, 2], "Y": [1, 2, 4, 2], "K": [1, 5, 2]}),
    (Matmul(9, 7, 5, "TT"), {"X": [1, 3, 3, 1], "Y": [1, 1, 5, 1], "K": [7, 1, 1]}),
    (Matmul(7, 3, 1), {"X": [7, 1, 1, 1], "Y": [1, 1, 1, 1], "K": [1, 1, 3]}),
]


def gpu():
    try:
        return find_device("cuda")
    except ValueError:
        return None


def source_of(workload, config):
    target = build.target_of(GENERIC["cuda"])
    return build.device_source(build.compile_module(build.instantiate(matmul_cuda, workload, config, target), target))


@pytest.mark.parametrize("workload, config", CASES, ids=lambda case: getattr(case, "layout", ""))
def test_the_kernel_gives_numpy_s_answer(workload, config, tmp_path):
    """On the GPU where there is one; else its generated code runs on the CPU."""
    device = gpu()
    if device is not None:
        result = measure(workload, config, device)
        assert (ErrorCode(result["error_code"]), result["error"]) == (ErrorCode.NO_ERROR, "")
        return
    x, y = workload.inputs()
    z = np.full((workload.n, workload.m), np.nan, np.float32)
    grid, block = (config["Y"][0], config["X"][0]), (config["Y"][2], config["X"][2])
    emulate(source_of(workload, config), tmp_path, grid, block, {"X": x, "Y": y, "Z": z})
    assert wrong_answer(z, workload.reference(x, y)) is None


def test_configurations_within_the_constraints_pass_the_static_limits():
    for workload in WORKLOADS.values():
        constraints = matmul_cuda.constraints(workload, GENERIC["cuda"])
        space = SearchSpace.from_json(matmul_cuda.search_space(workload), constraints)
        rng = random.Random(0)
        for _ in range(25):
            build.instantiate(matmul_cuda, workload, space.sample(rng), build.target_of(GENERIC["cuda"]))


@pytest.mark.parametrize(
    "config, limit",
    [
        ({"X": [4, 1, 32, 4], "Y": [4, 1, 64, 4], "K": [128, 4, 2]}, "max_threads_per_block <= 1024"),
        ({"X": [8, 2, 8, 4], "Y": [16, 2, 8, 4], "K": [2, 128, 4]}, "max_shared_memory_per_block <= 49152"),
    ],
)
def test_a_kernel_beyond_a_limit_is_refused_before_it_is_compiled(config, limit):
    workload = WORKLOADS["mm1"]
    space = SearchSpace.from_json(matmul_cuda.search_space(workload), matmul_cuda.constraints(workload, GENERIC["cuda"]))
    assert not space.contains(config)
    with pytest.raises(ValueError, match=limit):
        build.instantiate(matmul_cuda, workload, config, build.target_of(GENERIC["cuda"]))


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed: the CUDA template is not compiled to cubin")
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_the_template_compiles_to_cubin(arch):
    from tvm.support import nvcc

    workload = WORKLOADS["mm1"]
    device = Device("cuda", arch, "cuda", arch=arch)
    space = SearchSpace.from_json(matmul_cuda.search_space(workload), matmul_cuda.constraints(workload, device))
    config = space.sample(random.Random(0))
    with build.target_of(device):
        cubin = nvcc.compile_cuda(source_of(workload, config), target_format="cubin", arch=arch, compiler="nvcc")
    assert bytes(cubin[:4]) == b"\x7fELF"


def test_the_template_is_known():
    assert get_template(WORKLOADS["mm1"], "cuda") is matmul_cuda
