"""A template whose configurations go wrong in every way there is; the matrix multiplication of the CPU template otherwise."""

import ctypes
import itertools
import os
import signal

from nni_tensor_tuners.schedules import matmul_cpu, matmul_cuda


def good(workload):
    return {"X": [1, 1, workload.n // 4, 4], "Y": [2, 1, 1, workload.m // 2], "K": [1, workload.k, 1]}


def search_space(workload, extended=False):
    return {"fault": {"_type": "choice", "_value": list(FAULTS)}}


def schedule(workload, config):
    return FAULTS[config["fault"]](workload)


def fine(workload):
    return matmul_cpu.schedule(workload, good(workload))


def raises(workload):
    raise ValueError("this configuration is refused")


def segfaults(workload):
    ctypes.string_at(0)


def hangs_while_building(workload):
    for _ in itertools.count():
        ctypes.CDLL(None).usleep(1000)


def wrong_answer(workload):
    """Leaves out the last of the k products."""
    return _rewritten(workload, "te.sum(x[i, r] * y[r, j], axis=r)", reduced=workload.k - 1)


def reports_nan(workload):
    return _rewritten(workload, "te.sum(x[i, r] / (y[r, j] - y[r, j]) * 0.0, axis=r)")


def hangs_while_running(workload):
    """Some years of additions."""
    return _rewritten(workload, "te.sum(x[i, r % 2] * y[r % 3, j], axis=r)", reduced=1 << 50)


def aborts_while_running(workload):
    return _rewritten(workload, "tirx.call_extern('float32', 'abort')", reduced=None)


def leaves_a_child(workload):
    import subprocess

    subprocess.Popen(["sleep", "12345.678"])
    return raises(workload)


def kills_its_trial(workload):
    """The trial dies without a word; the worker goes with it."""
    os.kill(os.getppid(), signal.SIGKILL)
    hangs_while_building(workload)


def does_not_compile(workload):
    """GPU threads, for a CPU."""
    config = {"X": [1, 1, workload.n, 1], "Y": [1, 1, 1, workload.m], "K": [1, 1, workload.k]}
    return matmul_cuda.schedule(workload, config)


FAULTS = {
    f.__name__: f
    for f in (
        fine,
        raises,
        segfaults,
        hangs_while_building,
        hangs_while_running,
        aborts_while_running,
        wrong_answer,
        reports_nan,
        leaves_a_child,
        does_not_compile,
        kills_its_trial,
    )
}


def _rewritten(workload, element, reduced=0):
    """A schedule of some other computation on the workload's buffers."""
    from tvm import s_tir, te, tirx

    x, y = (te.placeholder(shape, name=name) for name, shape in zip("XY", workload.shapes))
    r = None if reduced is None else te.reduce_axis((0, tirx.IntImm("int64", reduced or workload.k)), name="k")
    scope = {"x": x, "y": y, "r": r, "te": te, "tirx": tirx}
    z = te.compute((workload.n, workload.m), lambda i, j: eval(element, {**scope, "i": i, "j": j}), name="Z")  # noqa: S307
    return s_tir.Schedule(te.create_prim_func([x, y, z]))
