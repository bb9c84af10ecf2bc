"""Measure a configuration in a process of its own, which is killed when it takes too long."""

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from dataclasses import asdict

from ..tasks.device import find_device, usable_cores
from .codes import ErrorCode
from .limits import Limits
from .workers import start_worker

# Stage -> (the limit it falls under, the code of a worker that dies in it, the code of one that takes too long).
STAGES = {
    "start": (None, ErrorCode.UNKNOWN_ERROR, ErrorCode.UNKNOWN_ERROR),
    "instantiate": ("build_seconds", ErrorCode.INSTANTIATION_ERROR, ErrorCode.BUILD_TIMEOUT),
    "compile": ("build_seconds", ErrorCode.COMPILE_HOST, ErrorCode.BUILD_TIMEOUT),
    "wait": (None, ErrorCode.UNKNOWN_ERROR, ErrorCode.UNKNOWN_ERROR),
    "run": ("run_seconds", ErrorCode.RUNTIME_DEVICE, ErrorCode.RUN_TIMEOUT),
}


def measure(task, config, device, limits=Limits(), best_latency_ms=None, save=None, cold=False):
    """Build, check against the expected output, and time one configuration.

    Parameters
    ----------
    task, config, device
        What to measure, and where: a `Task`, a configuration, a `Device`.
    limits
        A `Limits`.
    best_latency_ms
        The best latency known so far of this task; a kernel far slower is timed by single runs only.
    save
        A folder to write the compiled kernel to.
    cold
        Whether to time the kernel as part of a network: single runs, before each of which all buffers but the first input are
        flushed from a CPU's caches. The first one is what the network has just computed, the others are weights.

    Returns
    -------
    dict
        Always ``error_code`` (an `ErrorCode` as int) and ``error`` (one line, empty without error), and, where a worker started,
        ``stage_seconds``: what each of `STAGES` took. Without error also ``tflops``, ``latency_ms``, ``spread`` (interquartile
        range / median of the repeats), ``compile_seconds``, ``early_stopped``.
    """
    environment = _environment()
    if cold:  # threads that have gone to sleep during a flush are not found so by a network's next kernel
        environment["TVM_THREAD_POOL_SPIN_COUNT"] = str(10**8)
    job = {
        "config": config,
        "best_latency_ms": best_latency_ms,
        "save": str(save) if save else None,
        "cold": cold,
        "environment": environment,
        "folder": os.getcwd(),
    }
    try:
        worker = start_worker(device, environment, task.imports(device))
    except OSError as error:
        return _failure(ErrorCode.UNKNOWN_ERROR, f"the worker did not start ({error})")
    return _run(worker, job, task, device, limits)


def measure_reference(task, limits=Limits(), environment=None):
    """Time the task's reference (NumPy's) on the CPU as `measure` times kernels: in a fresh process, on all cores, with the
    same placement of buffers. Returns the same dict, without what concerns building.

    ``environment`` has variables for that process, such as OPENBLAS_CORETYPE."""
    command = [sys.executable, "-m", "nni_tensor_tuners.measure.worker"]
    environment = {**_environment(), **(environment or {})}
    worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, start_new_session=True)
    return _run(worker, {}, task, find_device("cpu"), limits)


def _environment():
    # TVM's thread pool reads the variable when it starts, and left alone starts one thread on a small machine.
    # NumPy's libraries are told the same, lest the yardstick be shorter than the kernel.
    names = ("TVM_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    return {**os.environ, **dict.fromkeys(names, str(usable_cores()))}


def _run(worker, job, task, device, limits):
    job = {**job, "workload": task.to_dict(), "device": asdict(device), "limits": asdict(limits)}
    began = [("start", time.monotonic())]
    with worker:
        try:
            worker.stdin.write(json.dumps(job).encode())
            worker.stdin.close()
            result = _follow(worker, limits, began)
            return {**result, "stage_seconds": _seconds_of(began)}
        except BrokenPipeError:
            return _failure(ErrorCode.UNKNOWN_ERROR, "the worker did not start")
        finally:
            _kill_group(worker)


def _seconds_of(began):
    """Stage -> seconds, of pairs (stage, when it began), the last of which has just ended."""
    ends = [*(start for _, start in began[1:]), time.monotonic()]
    return {stage: round(end - start, 6) for (stage, start), end in zip(began, ends)}


def _follow(worker, limits, began):
    """Read the worker's answers until the result, its death, or the end of its time; add to ``began`` when stages begin."""
    stage, deadline, buffered = "start", None, b""
    with selectors.DefaultSelector() as selector:
        selector.register(worker.stdout, selectors.EVENT_READ)
        while True:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not selector.select(left):
                limit, _, code = STAGES[stage]
                return _failure(code, f"took longer than {getattr(limits, limit):g} s to {stage}")
            chunk = os.read(worker.stdout.fileno(), 65536)
            if not chunk:
                return _failure(STAGES[stage][1], f"the worker {_end_of(worker)} in stage {stage}")
            *lines, buffered = (buffered + chunk).split(b"\n")
            for answer in map(json.loads, lines):
                if "stage" not in answer:
                    return answer
                began.append((answer["stage"], time.monotonic()))
                deadline = _next_deadline(stage, answer["stage"], deadline, limits)
                stage = answer["stage"]


def _next_deadline(old_stage, new_stage, deadline, limits):
    old_limit, new_limit = STAGES[old_stage][0], STAGES[new_stage][0]
    if new_limit is None:
        return None
    return deadline if new_limit == old_limit else time.monotonic() + getattr(limits, new_limit)


def _end_of(worker):
    code = worker.wait()
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with status {code}"


def _failure(code, message):
    return {"error_code": int(code), "error": message}


def _kill_group(worker):
    with contextlib.suppress(ProcessLookupError):  # the whole group is gone
        os.killpg(worker.pid, signal.SIGKILL)
