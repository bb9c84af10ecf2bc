"""Whether what the constraints of the CUDA templates allow really works, on a machine without a GPU.

usage: cuda_configurations.py [COUNT=500] [--device any|sm_90] [--cubins N] [--emulated N] [--jobs N] [--operators NAME...]

For each operator COUNT random configurations that the constraints of the device allow (any: those that hold for every GPU),
every other one of the extended space, are lowered and checked against the static limits; the first N of them are compiled to
cubin for sm_90 by nvcc (default: all); and N of a small shape of the same operator run in the tests' emulator, and are compared
with NumPy, or with the program as it is. Of a program they are of TVM's sketches, those that TVM accepts; where a configuration
makes several kernels it is not emulated.
"""

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import islice, repeat
from multiprocessing import get_context
from pathlib import Path

import tvm

from nni_tensor_tuners import SearchSpace
from nni_tensor_tuners.measure import build
from nni_tensor_tuners.measure.worker import wrong_answer
from nni_tensor_tuners.tasks import WORKLOADS
from nni_tensor_tuners.tasks.conv import Conv
from nni_tensor_tuners.tasks.cuda_limits import check_limits, lowered, shared_bytes, thread_extents
from nni_tensor_tuners.tasks.device import GENERIC, Device, limits_of
from nni_tensor_tuners.tasks.matmul import BatchMatmul, Matmul
from nni_tensor_tuners.tasks.norm import Norm
from nni_tensor_tuners.tasks.program import Program, ProgramTask, sketches
from nni_tensor_tuners.tasks.target import target_of

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from cuda_emulator import kernels_in  # noqa: E402
from cuda_emulator import run as emulate  # noqa: E402

DEVICES = {
    "any": replace(GENERIC["cuda"], arch="sm_90"),
    "sm_90": Device("cuda", "any GPU of sm_90", "cuda", arch="sm_90", **limits_of("sm_90")),
}

# Name -> (what is lowered and compiled, what is emulated).
OPERATORS = {
    "mm1": (WORKLOADS["mm1"], Matmul(24, 16, 32)),
    "bmm1": (WORKLOADS["bmm1"], BatchMatmul(16, 12, 8, "NN", 6)),
    "c2": (WORKLOADS["c2"], Conv(2, 8, (9, 9), 12, 5, 1, 2)),
    "resnet18-c2": (WORKLOADS["resnet18-c2"], Conv(1, 8, (14, 14), 8, 3, 1, 1)),
    "resnet18-c12": (WORKLOADS["resnet18-c12"], Conv(1, 16, (7, 7), 16, 3, 1, 1)),
    "depthwise": (Conv(1, 128, (56, 56), 128, 3, 1, 1, groups=128), Conv(1, 8, (14, 14), 8, 3, 2, 1, groups=8)),
    "transposed": (Conv(1, 256, (16, 16), 128, 4, 2, 1, transposed=True), Conv(1, 6, (5, 5), 8, 4, 2, 1, transposed=True)),
    "conv1d": (Conv(8, 128, (512,), 256, 9, 2, 4), Conv(2, 8, (32,), 12, 5, 2, 2)),
    "conv3d": (Conv(1, 32, (16, 56, 56), 64, 3, 1, 1), Conv(1, 4, (4, 6, 6), 6, 3, 1, 1)),
    "norm": (Norm(256, 256, 16), Norm(15, 16, 12)),
    "c1d": (Program("c1d"), Program("c1d(length=12, in_channels=8, out_channels=16)")),
    "c2d": (Program("c2d"), Program("c2d(height=12, width=12, out_channels=8)")),
    "dep": (Program("dep"), Program("dep(height=6, width=6, channels=8)")),
    "gmm": (Program("gmm"), Program("gmm(n=32, k=32, m=16)")),
    "softmax": (Program("softmax"), Program("softmax(n=16, m=64)")),
    "tbs": (Program("tbs"), Program("tbs(length=16, heads=2, dim=16)")),
    "float16": (Program("matmul(dtype='float16')"), Program("matmul(n=64, k=64, m=64, dtype='float16')")),
    "float16 in float32": (
        Program("matmul(dtype='float16', out_dtype='float32')"),
        Program("matmul(n=64, k=64, m=64, dtype='float16', out_dtype='float32')"),
    ),
    "bias+ReLU": (
        Program("conv_bias_relu"),
        Program("conv_bias_relu(height=6, width=6, in_channels=16, out_channels=16)"),
    ),
}


def draw(task, device, count, seed):
    """Random legal configurations, those of the paper's and of the extended space in turn."""
    rng = random.Random(seed)
    if isinstance(task, ProgramTask):
        made = [sketch for sketch in task.sketches(device) if "trace" in sketch]  # TVM's, not our template
        space = SearchSpace.from_json(sketches.search_space(made), sketches.constraints(made))
        settle = sketches.settler(task.source, made, target_of(device))
        return list(islice(filter(None, (settle(space.sample(rng)) for _ in iter(int, 1))), count))
    spaces = [
        SearchSpace.from_json(task.search_space(device, extended), task.constraints(device, extended))
        for extended in (False, True)
    ]
    return [spaces[i % 2].sample(rng) for i in range(count)]


def check(task, device, config, to_cubin):
    """How far a configuration gets: (lowered, within the limits, compiled), and the error that stopped it."""
    target = target_of(device)
    reached = [False, False, False]
    try:
        module = task.module(config, device)
        reached[0] = True
        check_limits(module, device, target)
        reached[1] = True
        if to_cubin:
            from tvm.support import nvcc

            source = build.device_source(build.compile_module(module, target))
            with target:
                cubin = nvcc.compile_cuda(source, target_format="cubin", arch=device.arch, compiler="nvcc")
            reached[2] = bytes(cubin[:4]) == b"\x7fELF"
    except Exception as error:  # TVM's errors share no base class
        return reached, f"{type(error).__name__}: {str(error).strip().splitlines()[-1]}"
    return reached, None


def wrong(task, device, configs):
    """How many configurations give a wrong answer, and of how many: those of one kernel."""
    target, inputs = target_of(device), task.inputs()
    kernels = []
    for config in configs:
        module = build.instantiate(task, config, device, target)
        source = build.device_source(build.compile_module(module, target))
        if kernels_in(source) > 1:
            continue
        _, at_launch = shared_bytes(lowered(module, target))
        kernels.append((source, thread_extents(module), dict(zip(task.buffers, inputs)), task.shapes[-1], at_launch))
    reference = task.reference(*inputs)
    with tempfile.TemporaryDirectory() as folder:
        outputs = emulate(kernels, folder) if kernels else []
    return sum(any(wrong_answer(z, reference, task.tolerance) for z in both) for both in outputs), len(kernels)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("count", nargs="?", type=int, default=500)
    parser.add_argument("--cubins", type=int, metavar="N", help="how many are compiled (default: all)")
    parser.add_argument("--emulated", type=int, metavar="N", default=12)
    parser.add_argument("--jobs", type=int, metavar="N", default=1)
    parser.add_argument("--operators", nargs="+", choices=OPERATORS, default=list(OPERATORS), metavar="NAME")
    parser.add_argument("--device", choices=DEVICES, default="any", help="whose constraints (default: %(default)s)")
    args = parser.parse_args()
    device = DEVICES[args.device]
    cubins = args.count if args.cubins is None else min(args.cubins, args.count)

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # killed, it would leave its workers behind
    version = subprocess.run(["nvcc", "--version"], capture_output=True, text=True, check=True).stdout
    release = version.partition("release ")[2].partition(",")[0]
    print(f"TVM {tvm.__version__}, CUDA {release}, {device.arch}; {args.count} legal configurations per operator, seed 0")
    print(f"shared memory of a block: up to {device.shared_bytes} bytes, on request {device.shared_bytes_optin}")
    print(f"{'operator':<14}{'lowered':>9}{'passed':>9}{'compiled':>12}{'wrong':>9}", flush=True)
    pool = ProcessPoolExecutor(args.jobs, mp_context=get_context("spawn"))
    try:
        for name in args.operators:
            task, small = OPERATORS[name]
            start = time.perf_counter()
            configs = draw(task, device, args.count, seed=0)
            flags = [i < cubins for i in range(args.count)]
            totals = [0, 0, 0]
            for done, (reached, error) in enumerate(pool.map(check, repeat(task), repeat(device), configs, flags), 1):
                totals = [total + more for total, more in zip(totals, reached)]
                if error:
                    print(f"{name}: {error}: {configs[done - 1]}", file=sys.stderr)
                if done % 50 == 0:
                    print(f"{name}: {done} of {args.count}, {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
            bad = "/".join(map(str, wrong(small, device, draw(small, device, args.emulated, seed=1))))
            lowered, passed, compiled = totals
            fractions = f"{f'{compiled}/{cubins}':>12}{bad:>9}"
            print(f"{name:<14}{lowered:>9}{passed:>9}{fractions}", flush=True)
    finally:
        pool.shutdown(cancel_futures=True)


if __name__ == "__main__":
    main()
