"""An operator from outside the package whose configurations go wrong in every way there is; else a matrix multiplication."""

import ctypes
import itertools
import os
import sys

import psutil

from nni_tensor_tuners.tasks.matmul import Matmul, cpu, cuda


class Faulty(Matmul):
    """A matrix multiplication whose one parameter says what goes wrong."""

    operator = "faulty_template:Faulty"

    def search_space(self, device, extended=False):
        return {"fault": {"_type": "choice", "_value": list(FAULTS)}}

    def constraints(self, device, extended=False):
        return []

    def module(self, config, device):
        return FAULTS[config["fault"]](self).mod


def good(task):
    return {"X": [1, 1, task.n // 4, 4], "Y": [2, 1, 1, task.m // 2], "K": [1, task.k, 1]}


def fine(task):
    return cpu.schedule(task, good(task))


def raises(task):
    raise ValueError("this configuration is refused")


def segfaults(task):
    ctypes.string_at(0)


def hangs_while_building(task):
    for _ in itertools.count():
        ctypes.CDLL(None).usleep(1000)


def wrong_answer(task):
    """Leaves out the last of the k products."""
    return _rewritten(task, "te.sum(x[i, r] * y[r, j], axis=r)", reduced=task.k - 1)


def reports_nan(task):
    return _rewritten(task, "te.sum(x[i, r] / (y[r, j] - y[r, j]) * 0.0, axis=r)")


def hangs_while_running(task):
    """Some years of additions."""
    return _rewritten(task, "te.sum(x[i, r % 2] * y[r % 3, j], axis=r)", reduced=1 << 50)


def aborts_while_running(task):
    return _rewritten(task, "tirx.call_extern('float32', 'abort')", reduced=None)


def leaves_a_child(task):
    import subprocess

    subprocess.Popen(["sleep", "12345.678"])
    return raises(task)


def kills_its_trial(task):
    """The trial dies without a word; the worker goes with it."""
    ours = os.environ["NNI_TRIAL_JOB_ID"]
    for process in psutil.process_iter(["cmdline", "environ"]):
        if "faulty.py" in (process.info["cmdline"] or ()) and process.info["environ"].get("NNI_TRIAL_JOB_ID") == ours:
            process.kill()
    hangs_while_building(task)


def tells_its_environment(task):
    raise ValueError(f"{os.getcwd()} {os.environ['TENSOR_TUNERS_TEST']}")


def tells_its_modules(task):
    raise ValueError(str([name for name in ("planted_module", "no_such_module") if name in sys.modules]))


def does_not_compile(task):
    """GPU threads, for a CPU."""
    config = {"X": [1, 1, task.n, 1], "Y": [1, 1, 1, task.m], "K": [1, 1, task.k]}
    return cuda.schedule(task, config)


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
        tells_its_environment,
        tells_its_modules,
    )
}


def _rewritten(task, element, reduced=0):
    """A schedule of some other computation on the task's buffers."""
    from tvm import s_tir, te, tirx

    x, y = (te.placeholder(shape, name=name) for name, shape in zip("XY", task.shapes))
    r = None if reduced is None else te.reduce_axis((0, tirx.IntImm("int64", reduced or task.k)), name="k")
    scope = {"x": x, "y": y, "r": r, "te": te, "tirx": tirx}
    z = te.compute((task.n, task.m), lambda i, j: eval(element, {**scope, "i": i, "j": j}), name="Z")  # noqa: S307
    return s_tir.Schedule(te.create_prim_func([x, y, z]))
