"""The best kernel of an experiment: timed again against its rivals, and written where others can load it."""

import json
from pathlib import Path
from statistics import median

from .measure import ErrorCode, Limits, measure, measure_reference
from .measure.remote import find_again
from .study import records
from .tasks import from_dict
from .tasks.device import usable_cores

# What succeeded within a trial's limits must not fail here by others.
PATIENT = Limits(build_seconds=600, run_seconds=600)

USAGE = """\
\"\"\"Run the exported kernel with TVM's runtime alone, on random data.

Where nni_tensor_tuners is installed, its answer is compared with NumPy's.
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
*inputs, output = {shapes}  # shapes of {names}
arrays = [rng.uniform(-1, 1, shape).astype("float32") for shape in inputs]
arguments = [tvm.runtime.tensor(array, device) for array in (*arrays, np.zeros(output, "float32"))]
kernel = tvm.runtime.load_module(os.path.join(folder, "kernel.so"))
kernel["main"](*arguments)
device.sync()
result = arguments[-1].numpy()
try:
    from nni_tensor_tuners.tasks import from_dict
except ImportError:
    sys.exit("it runs; nni_tensor_tuners is not installed, so its answer was not compared with NumPy's")
with open(os.path.join(folder, "best.json"), encoding="utf-8") as file:
    task = from_dict(json.load(file)["workload"])
expected = task.reference(*arrays)
error = float(np.abs(result - expected).max())
print(f"largest difference from NumPy: {{error:.2e}}")
sys.exit(int(not error <= task.tolerance * np.abs(expected).max()))
"""


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
        left out. And NumPy's TFLOPS, median over the same rounds.

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
    return sorted(again, key=lambda record: record["retimed_ms"]), task.flop / median(numpy_latencies) / 1e9


def write(winner, numpy_tflops, folder):
    """Write the winner's ``best.json``, ``kernel.so``, ``kernel.py`` (TIR), ``kernel.cu`` (CUDA only) and ``run_kernel.py``.

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
    best["numpy_tflops"] = numpy_tflops
    (folder / "best.json").write_text(json.dumps(best, indent=2) + "\n", encoding="utf-8")
    usage = USAGE.format(kind=device.kind, shapes=task.shapes, names=", ".join(task.buffers))
    (folder / "run_kernel.py").write_text(usage, encoding="utf-8")


def finish(found, output, progress, count=4, rounds=3):
    """Time the best records of an experiment again, and export the winner to a folder; ``progress`` as for `local.tune`."""
    ranked, numpy_tflops = time_again(finalists(found, count), rounds, progress.say)
    best = ranked[0]
    write(best, numpy_tflops, output)
    progress.say(
        f"best, timed again: {best['retimed_tflops']:.4g} TFLOPS ({best['retimed_ms']:.4g} ms), "
        f"{best['retimed_tflops'] / numpy_tflops:.2f} x NumPy's {numpy_tflops:.4g} TFLOPS on {usable_cores()} cores"
    )
    progress.say(f"written to {output}: {', '.join(sorted(path.name for path in Path(output).iterdir()))}")
