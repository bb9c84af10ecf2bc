"""The best kernel of an experiment: timed again against its rivals, and written where others can load it."""

import json
from pathlib import Path
from statistics import median

from .measure import ErrorCode, Limits, measure, measure_reference
from .measure.remote import find_again
from .study import records
from .tasks import from_dict
from .tasks.device import usable_cores
from .tasks.program import DLIGHT, ProgramTask, database
from .tasks.target import target_of

# What succeeded within a trial's limits must not fail here by others.
PATIENT = Limits(build_seconds=600, run_seconds=600)

USAGE = """\
\"\"\"Run the exported kernel with TVM's runtime alone, on random data.

{comparison}
\"\"\"

import json
import os
import sys

os.environ["TVM_USE_RUNTIME_LIB"] = "1"  # no compiler is loaded
os.environ.setdefault("TVM_NUM_THREADS", str(len(os.sched_getaffinity(0))))  # else TVM may start a single thread

import numpy as np
import tvm

folder = os.path.dirname(os.path.abspath(__file__))
device = tvm.device("{kind}")
rng = np.random.default_rng(0)
*inputs, output = {buffers}  # {names}
numbers = lambda shape, dtype: rng.integers(0, 8, shape) if "int" in dtype else rng.uniform(-1, 1, shape)
arrays = [numbers(shape, dtype).astype(dtype) for shape, dtype in inputs]
arguments = [tvm.runtime.tensor(array, device) for array in (*arrays, np.zeros(*output))]
kernel = tvm.runtime.load_module(os.path.join(folder, "kernel.so"))
kernel["main"](*arguments)
device.sync()
result = arguments[-1].numpy().astype(float)
{expected}
error = float(np.abs(result - expected).max())
print(f"largest difference from {reference}: {{error:.2e}}")
sys.exit(int(not error <= {tolerance} * float(np.abs(expected).max())))
"""

BY_NUMPY = {
    "comparison": "Where nni_tensor_tuners is installed, its answer is compared with NumPy's.",
    "reference": "NumPy",
    "expected": """\
try:
    from nni_tensor_tuners.tasks import from_dict
except ImportError:
    sys.exit("it runs; nni_tensor_tuners is not installed, so its answer was not compared with NumPy's")
with open(os.path.join(folder, "best.json"), encoding="utf-8") as file:
    task = from_dict(json.load(file)["workload"])
expected = task.reference(*arrays)""",
}
# The reference of a program is compiled, for which the runtime alone is not enough: its answer comes along.
BY_FILE = {
    "comparison": "Its answer is compared with that of the unscheduled program, expected.npy.",
    "reference": "the unscheduled program",
    "expected": 'expected = np.load(os.path.join(folder, "expected.npy"))',
}


def finalists(found, count):
    """The best successful records: fully timed ones, that say what they are of (trials not ours do not)."""
    timed = [r for r in found if records.succeeded(r) and not r.get("early_stopped") and "workload" in r]
    return sorted(timed, key=lambda record: -record["tflops"])[:count]


def time_again(candidates, rounds, progress=lambda text: None):
    """Time the best few once more, taking turns, each time in a fresh process, NumPy among them.

    One lucky timing must not win, and some kernels are fast in one process and slow in the next.

    Parameters
    ----------
    candidates
        Records of one workload on one device.
    rounds
        How often each is timed.
    progress
        Called with a line of text as things proceed.

    Returns
    -------
    (list, float)
        The candidates with ``retimed_ms`` (median over rounds) and ``retimed_tflops``, fastest first; those that failed are
        left out. And NumPy's TFLOPS, median over the same rounds; None where the reference is not NumPy's.

    Raises
    ------
    ValueError
        If there is no candidate, or none can be built again.
    """
    if not candidates:
        raise ValueError(
            "export: no trial of ours succeeded in this experiment, on this machine; of trials on other machines the whole "
            "records are in nni-experiments there"
        )
    task = from_dict(candidates[0]["workload"])
    device = find_again(candidates[0]["device"])
    latencies = [[] for _ in candidates]
    numpy_latencies = []
    for turn in range(rounds):
        progress(f"timing the best {len(candidates)} again, round {turn + 1} of {rounds}")
        for record, times in zip(candidates, latencies):
            result = measure(task, record["config"], device, PATIENT)
            if result["error_code"] == ErrorCode.NO_ERROR:
                times.append(result["latency_ms"])
        if not task.numpy:
            continue
        reference = measure_reference(task, PATIENT)
        if reference["error_code"] != ErrorCode.NO_ERROR:
            raise ValueError(f"export: timing NumPy failed: {reference['error']}")
        numpy_latencies.append(reference["latency_ms"])
    again = [
        {**record, "retimed_ms": median(times), "retimed_tflops": task.flop / median(times) / 1e9}
        for record, times in zip(candidates, latencies)
        if len(times) == rounds
    ]
    if not again:
        raise ValueError("export: none of the best configurations could be built and run again")
    ranked = sorted(again, key=lambda record: record["retimed_ms"])
    return ranked, task.flop / median(numpy_latencies) / 1e9 if numpy_latencies else None


def write(winner, numpy_tflops, folder):
    """Write the winner's ``best.json``, ``kernel.so``, ``kernel.py`` (TIR), ``kernel.cu`` (CUDA only) and ``run_kernel.py``.

    Of a program ``expected.npy``, too.

    Raises
    ------
    ValueError
        If the kernel cannot be built.
    """
    task = from_dict(winner["workload"])
    device = find_again(winner["device"])
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    result = measure(task, winner["config"], device, PATIENT, save=folder)
    if result["error_code"] != ErrorCode.NO_ERROR:
        raise ValueError(f"export: building the best configuration failed: {result['error']}")
    best = {key: winner[key] for key in ("config", "workload", "device", "retimed_ms", "retimed_tflops")}
    if numpy_tflops is not None:
        best["numpy_tflops"] = numpy_tflops
    (folder / "best.json").write_text(json.dumps(best, indent=2) + "\n", encoding="utf-8")
    buffers = list(zip(task.shapes, task.dtypes))
    usage = USAGE.format(
        kind=device.kind,
        buffers=buffers,
        names=", ".join(task.buffers),
        tolerance=task.tolerance,
        **(BY_NUMPY if task.numpy else BY_FILE),
    )
    if not task.numpy:
        _save_expected(task, buffers[:-1], folder / "expected.npy")
    (folder / "run_kernel.py").write_text(usage, encoding="utf-8")


def _save_expected(task, buffers, path):
    """The answer to what ``run_kernel.py`` draws."""
    import numpy as np

    rng = np.random.default_rng(0)
    drawn = [rng.integers(0, 8, shape) if "int" in dtype else rng.uniform(-1, 1, shape) for shape, dtype in buffers]
    np.save(path, task.reference(*(array.astype(dtype) for array, (_, dtype) in zip(drawn, buffers))).astype(float))


def write_database(ranked, folder):
    """Add schedules to a MetaSchedule ``JSONDatabase``, where ``compile_tir`` and ``compile_relax`` find them.

    Parameters
    ----------
    ranked
        Records of a program with ``retimed_ms``.
    folder
        Made if there is none.

    Raises
    ------
    ValueError
        If they are of no program: a template's schedule is one of TVM's, but not of a module that a user has.

    Returns
    -------
    How many: DLight's, which TVM makes by itself, is left out.
    """
    task, device = from_dict(ranked[0]["workload"]), find_again(ranked[0]["device"])
    if not isinstance(task, ProgramTask):
        raise ValueError(f"--database: it is for programs; {task.operator} is scheduled by a template")
    sketched = [each for each in ranked if each["config"] != DLIGHT]
    schedules = [(task.source, task.schedule(each["config"], device), each["retimed_ms"] / 1e3) for each in sketched]
    database.add(folder, schedules, target_of(device))
    return len(schedules)


def untuned(candidates):
    """The record, without timings, of the schedule that a program has where nothing is tuned; None of anything but a program.

    Parameters
    ----------
    candidates
        Records of one workload on one device.
    """
    task = from_dict(candidates[0]["workload"])
    config = task.default(find_again(candidates[0]["device"])) if isinstance(task, ProgramTask) else None
    return config and {**{key: candidates[0][key] for key in ("workload", "device")}, "config": config}


def finish(found, output, progress, count=4, rounds=3, into=None):
    """Time the best records of an experiment again, and export the winner to a folder; ``progress`` as for `local.tune`.

    The default schedule of a program takes part: no search space has a GPU's. ``into`` names a folder for `write_database`; None for
    none.
    """
    candidates = finalists(found, count)
    default = untuned(candidates) if candidates else None
    if default and all(each["config"] != default["config"] for each in candidates):
        candidates.append(default)
    ranked, numpy_tflops = time_again(candidates, rounds, progress.say)
    best = ranked[0]
    write(best, numpy_tflops, output)
    beside = ""
    if numpy_tflops is not None:
        ratio = best["retimed_tflops"] / numpy_tflops
        beside = f", {ratio:.2f} x NumPy's {numpy_tflops:.4g} TFLOPS on {usable_cores()} cores"
    elif default and (timed := [each for each in ranked if each["config"] == default["config"]]):
        ratio = best["retimed_tflops"] / timed[0]["retimed_tflops"]
        beside = f", {ratio:.2f} x the default schedule's {timed[0]['retimed_tflops']:.4g} TFLOPS"
    progress.say(f"best, timed again: {best['retimed_tflops']:.4g} TFLOPS ({best['retimed_ms']:.4g} ms){beside}")
    if into is not None:
        progress.say(f"added to {into}: {write_database(ranked, into)} schedules")
    progress.say(f"written to {output}: {', '.join(sorted(path.name for path in Path(output).iterdir()))}")
