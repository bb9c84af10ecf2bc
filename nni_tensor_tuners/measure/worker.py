"""The process that builds, checks and times one configuration; `measure` starts it and kills it when it takes too long.

Reads a job as JSON from standard input and answers with JSON lines: ``{"stage": ...}`` as each stage begins, at the end the
result. It does not outlive its parent.
"""

import functools
import json
import os
import sys
import tempfile
import time

from ..tasks import Task, from_dict
from ..tasks.device import Device
from ..tasks.shared import shared_folder
from ..tasks.target import target_of
from .child import die_with_parent, first_line
from .codes import ErrorCode
from .limits import Limits
from .lock import DeviceLock
from .reference import expected_output

# NumPy and TVM are imported inside functions, once the device is ours to disturb.


# TVM's function that flushes the buffers of all arguments but the first from a CPU's caches.
FLUSH = "cache_flush_cpu_non_first_arg"


class Failure(Exception):
    """A measurement that ended with an error code."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


def main():
    die_with_parent()
    # Libraries print to standard output; the answers go where nobody else writes.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def answer(**fields):
        answers.write(json.dumps(fields) + "\n")
        answers.flush()

    job = json.load(sys.stdin)
    if "environment" in job:
        os.environ.clear()
        os.environ.update(job["environment"])
        os.chdir(job["folder"])
        tempfile.tempdir = None  # what Python remembers is the keeper's
    try:
        result = {"error_code": ErrorCode.NO_ERROR, "error": "", **run_job(job, lambda stage: answer(stage=stage))}
    except Failure as failure:
        result = {"error_code": failure.code, "error": first_line(failure)}
    except Exception as error:
        result = {"error_code": ErrorCode.UNKNOWN_ERROR, "error": f"{type(error).__name__}: {first_line(error)}"}
    answer(**result)


def run_job(job, begin):
    """Build, check and time; returns the result's fields or raises `Failure`."""
    device, limits = Device(**job["device"]), Limits(**job["limits"])
    task = from_dict(job["workload"])
    lock = DeviceLock(device)
    if "config" not in job:
        with lock.exclusive():
            begin("run")
            timed = time_reference(task, limits)
        return {**timed, "tflops": task.flop / timed["latency_ms"] / 1e9}
    with lock.shared():
        from . import build, cores  # imports TVM, which is work for a CPU's cores as well

        target = target_of(device)
        begin("instantiate")
        start = time.perf_counter()
        try:
            module = build.instantiate(task, job["config"], device, target)
        except Exception as error:
            raise Failure(ErrorCode.INSTANTIATION_ERROR, error) from None
        begin("compile")
        try:
            if device.rpc:
                from . import remote

                remote.compile_cuda_here()
            library = build.compile_module(module, target)
            exported = remote.export(library) if device.rpc else None
        except Exception as error:
            device_error = build.is_device_error(error)
            raise Failure(ErrorCode.COMPILE_DEVICE if device_error else ErrorCode.COMPILE_HOST, error) from None
        compile_seconds = time.perf_counter() - start
        if job.get("save"):
            save(job["save"], library, module, build.device_source(library))
        if device.kind == "cuda" and not device.rpc:
            wake_gpu()
        begin("wait")
        inputs = task.inputs()
        expected = expected_output(task, inputs, shared_folder())
    if device.rpc:
        try:
            server = remote.wait_for_server(device.rpc, device.key, remote.RETURN_SECONDS)
        except OSError as error:
            raise Failure(ErrorCode.RUNTIME_DEVICE, error) from None
        begin("run")
        opened = functools.partial(remote.opened, server, exported, device.kind, limits.run_seconds)
        timed = check_and_time(opened, inputs, expected, task.tolerance, limits, job.get("best_latency_ms"))
    else:
        with lock.exclusive():
            begin("run")
            opened = functools.partial(opened_here, library, device.kind)
            disturbed = cores.disturbed if device.kind == "cpu" else None
            cold = job.get("cold", False) and device.kind == "cpu"
            best = job.get("best_latency_ms")
            timed = check_and_time(opened, inputs, expected, task.tolerance, limits, best, disturbed, cold)
    timed["tflops"] = task.flop / timed["latency_ms"] / 1e9
    return {**timed, "compile_seconds": compile_seconds}


def wake_gpu():
    """Have CUDA set up its context, which takes longer than most kernels' timing: before the GPU is ours alone, not after."""
    import tvm

    try:
        tvm.runtime.empty((1,), "float32", tvm.cuda()).numpy()
    except Exception as error:
        raise Failure(ErrorCode.RUNTIME_DEVICE, error) from None


def opened_here(library, kind):
    """The compiled module, the TVM device to run it on, and a function that brings an array there."""
    import tvm
    import tvm_ffi

    from .timing import place

    if kind == "cuda":
        return library.mod, tvm.cuda(), lambda array: tvm.runtime.tensor(array, tvm.cuda())

    def put(array):
        placed = place(array)
        if array.dtype.kind != "V":
            return tvm_ffi.from_dlpack(placed)
        # A type that NumPy, and so DLPack, has not by itself: bfloat16.
        return tvm_ffi.from_dlpack(placed.view(f"u{array.itemsize}"))._create_view(array.shape, str(array.dtype))

    return library.mod, tvm.cpu(), put


def check_and_time(opened, inputs, expected, tolerance, limits, best_latency_ms, disturbed=None, cold=False):
    """Run once and compare with the reference, then time; ``opened()`` returns what `opened_here` does."""
    import numpy as np

    from .timing import time_cold, time_repeatedly

    try:
        module, where, put = opened()
        arguments = [put(array) for array in (*inputs, np.zeros_like(expected))]
        module["main"](*arguments)
        where.sync()
        difference = wrong_answer(arguments[-1].numpy(), expected, tolerance)
        if difference is None:

            def run(number, repeat, before=""):
                evaluator = module.time_evaluator("main", where, number=number, repeat=repeat, f_preproc=before)
                return list(evaluator(*arguments).results)

            best_seconds = best_latency_ms and best_latency_ms / 1e3
            if cold:
                return time_cold(lambda repeat: run(1, repeat, FLUSH), limits, best_seconds)
            return time_repeatedly(run, limits, best_seconds, disturbed)
    except Exception as error:
        raise Failure(ErrorCode.RUNTIME_DEVICE, error) from None
    raise Failure(ErrorCode.WRONG_ANSWER, difference)


def time_reference(task, limits):
    """Time NumPy."""
    from . import cores
    from .timing import place, time_repeatedly

    inputs = [place(array) for array in task.inputs()]
    output = place(task.reference(*inputs))

    def run(number, repeat):
        means = []
        for _ in range(repeat):
            start = time.perf_counter()
            for _ in range(number):
                task.reference(*inputs, out=output)
            means.append((time.perf_counter() - start) / number)
        return means

    return time_repeatedly(run, limits, disturbed=cores.disturbed)


def wrong_answer(actual, expected, tolerance=Task.tolerance):
    """None if an output is right, else what is wrong with it; ``tolerance`` is relative to the largest expected output."""
    import numpy as np

    if expected.dtype != np.float32:  # differences of short types would overflow
        actual, expected = actual.astype(np.float64), expected.astype(np.float64)
    tolerance *= float(np.abs(expected).max())
    error = np.abs(actual - expected)
    wrong = ~(error <= tolerance)  # so that NaN is wrong
    if not wrong.any():
        return None
    place_ = tuple(int(i) for i in np.argwhere(wrong)[0])
    return (
        f"{int(wrong.sum())} of {wrong.size} elements differ from the reference by more than {tolerance:.1e}; "
        f"at {place_}: {actual[place_]:.6g} instead of {expected[place_]:.6g}"
    )


def save(folder, library, module, source):
    """Write the kernel to a folder: ``kernel.so``, ``kernel.py`` (TIR) and, for CUDA, ``kernel.cu``."""
    library.export_library(os.path.join(folder, "kernel.so"))
    texts = {"kernel.py": module.script(), "kernel.cu": source}
    for name, text in texts.items():
        if text is not None:
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(text)


if __name__ == "__main__":
    main()
