"""The end of a network's tuning: the best schedules timed again, the model compiled with them, and what it takes."""

import json
import shutil
import tempfile
from pathlib import Path
from statistics import median

from ..export import PATIENT
from ..measure import ErrorCode, measure
from ..measure.remote import find_again
from ..study import records
from ..tasks import from_dict
from ..tasks.network import lower, models
from ..tasks.network.definition import own_config
from ..tasks.program import DLIGHT, database
from ..tasks.target import target_of
from . import runner
from .earlier import first_records, known_records
from .prepare import lowered

# Schedules that are timed again: at most so many of a task, within so much of its best.
RIVALS, NEAR = 3, 1.05
# The largest difference from the untuned model that is right, relative to the largest output.
TOLERANCE = 1e-3

USAGE = '''\
"""Run the exported model with TVM's runtime alone, on random data: python3 run_model.py [SECONDS]"""

import os
import sys
import time

os.environ["TVM_USE_RUNTIME_LIB"] = "1"  # no compiler is loaded
os.environ.setdefault("TVM_NUM_THREADS", str(len(os.sched_getaffinity(0))))  # else TVM may start a single thread

import numpy as np
import tvm
from tvm.runtime.vm import VirtualMachine

folder = os.path.dirname(os.path.abspath(__file__))
device = tvm.device("{kind}")
model = VirtualMachine(tvm.runtime.load_module(os.path.join(folder, "model.so")), device)
with np.load(os.path.join(folder, "example.npz")) as file:  # inputs, and the untuned model's outputs
    inputs = [file[name] for name in sorted(file.files) if name.startswith("input")]
    expected = [file[name] for name in sorted(file.files) if name.startswith("output")]
arguments = [tvm.runtime.tensor(each, device) for each in inputs]


def run():
    result = model["main"](*arguments)
    device.sync()
    return [result.numpy()] if hasattr(result, "numpy") else [each.numpy() for each in result]


outputs = run()
error = max(float(np.abs(a.astype(float) - b).max() / max(np.abs(b).max(), 1e-30)) for a, b in zip(outputs, expected))
print(f"largest difference from the untuned model, relative to its largest output: {{error:.1e}}")
times, end = [], time.perf_counter() + float(sys.argv[1] if sys.argv[1:] else 1)
while time.perf_counter() < end:
    start = time.perf_counter()
    run()
    times.append(time.perf_counter() - start)
print(f"{{sorted(times)[len(times) // 2] * 1e3:.3f}} ms, median of {{len(times)}} runs")
sys.exit(int(not error <= {tolerance}))
'''


def finish(found, output, progress, rounds=3, into=None):
    """Time the best schedules of each task again, compile the model with the winners and with the default schedules, and time those.

    The faster one is what is left.

    Writes ``model.so``, ``run_model.py`` and ``example.npz`` (inputs, and the untuned model's outputs), ``database/``
    (MetaSchedule's) and ``model.json`` (what was measured).

    Parameters
    ----------
    found
        Records of an experiment; ``network`` is in each.
    output
        A folder, made if need be.
    progress
        With ``show`` and ``say``, as `cli.progress.Progress`.
    rounds
        How often schedules and models are timed, in turns.
    into
        A folder with a MetaSchedule database, made if need be, that gets the schedules, too; None for none.

    Raises
    ------
    ValueError
        If the model has changed since, or cannot be compiled, or its answer is wrong.
    """
    network = network_of(found)
    device = find_again(found[0]["device"])
    output = Path(output)
    output.mkdir(parents=True, exist_ok=True)
    defaults = first_records(network, device)
    ways = {"tuned": winners(network, [*known_records(network, device), *found], device, rounds, progress)}
    if defaults:
        ways["default schedules"] = winners(network, defaults, device, rounds)
    text, batch = network.description["model"], network.description["batch"]
    progress.say(f"compiling {text} with the best schedules")
    module = lowered(text, batch, device, network.description.get("winograd", {}))
    _check_same(network, module, device)
    with tempfile.TemporaryDirectory() as scratch:
        built, compiled = {}, {}
        for number, (way, best) in enumerate(ways.items()):
            # DLight's `lower.build` makes by itself.
            tasks = [(network.tasks[name], config, seconds) for name, config, seconds in best if config != DLIGHT]
            built[way] = [(task.source, task.schedule(config, device), seconds) for task, config, seconds in tasks]
            compiled[way] = Path(scratch) / f"way{number}.so"
            lower.build(module, [pair for *pair, _ in built[way]], device).export_library(str(compiled[way]))
        summary = _timed(text, batch, compiled, device, output, Path(scratch), rounds, progress)
        # Kernels that are faster alone can be slower together.
        fastest = min(ways, key=summary["latency_ms"].get)
        shutil.copyfile(compiled[fastest], output / "model.so")
    shutil.rmtree(output / "database", ignore_errors=True)
    for folder in filter(None, (output / "database", into)):
        database.add(folder, built[fastest], target_of(device))
    usage = USAGE.format(kind=device.kind, tolerance=TOLERANCE)
    (output / "run_model.py").write_text(usage, encoding="utf-8")
    summary = {
        "model": text,
        "batch": batch,
        "device": device.label(),
        **summary,
        "exported": fastest,
        "tasks": {name: {"latency_ms": seconds * 1e3, "config": config} for name, config, seconds in ways[fastest]},
    }
    (output / "model.json").write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    for name, milliseconds in summary["latency_ms"].items():
        progress.say(f"  {name:<20}{milliseconds:10.3f} ms{', exported' if name == fastest else ''}")
    progress.say(f"written to {output}: {', '.join(sorted(path.name for path in output.iterdir()))}")
    difference = summary["differences"][fastest]
    if not difference <= TOLERANCE:
        raise ValueError(f"the tuned model's answer is {difference:.1e} of the largest output off the untuned one's")


def network_of(found):
    """The network that an experiment's records are of; None where they are of something else."""
    described = next((record["network"] for record in found if "network" in record), None)
    return None if described is None else from_dict(described)


def winners(network, found, device, rounds=2, progress=None):
    """(task's name, configuration of its program, latency in s) of the best schedule of each task that has one.

    Those that are near the best are timed again, in turns.
    """
    timed = [r for r in found if records.succeeded(r) and not r.get("early_stopped")]
    of_task, best = network.by_task(timed), []
    for number, name in enumerate(sorted(of_task), 1):
        lowest = {}  # by configuration: one may be known from several experiments
        for record in sorted(of_task[name], key=lambda record: record["latency_ms"]):
            config = own_config(record)
            lowest.setdefault(json.dumps(config, sort_keys=True), (record["latency_ms"], config))
        ranked = list(lowest.values())
        rivals = [config for latency, config in ranked[:RIVALS] if latency <= NEAR * ranked[0][0]]
        if len(rivals) == 1:
            best.append((name, rivals[0], ranked[0][0] / 1e3))
            continue
        if progress:
            progress.show(f"timing the best schedules again: task {number} of {len(of_task)}")
        times = [[] for _ in rivals]
        for _ in range(rounds):
            for config, own in zip(rivals, times):
                result = measure(network.tasks[name], config, device, PATIENT, cold=True)
                if result["error_code"] == ErrorCode.NO_ERROR:
                    own.append(result["latency_ms"])
        again = [(median(own), place) for place, own in enumerate(times) if own]
        latency, place = min(again) if again else (ranked[0][0], 0)
        best.append((name, rivals[place], latency / 1e3))
    return best


def _check_same(network, module, device):
    from ..tasks.program.load import save

    with tempfile.TemporaryDirectory() as scratch:
        for _, function, _ in lower.tasks(module, device):
            save(function, Path(scratch))
        now = {path.name for path in Path(scratch).iterdir()}
    before = {Path(task.path).name for task in network.tasks.values()}
    if not before <= now:
        raise ValueError(f"model {network.description['model']}: it has changed since its tasks were tuned")


def _timed(text, batch, compiled, device, output, scratch, rounds, progress):
    """Latencies of a model untuned, as compiled in some ways, and by onnxruntime where it can; how answers differ."""
    import numpy as np

    from ..tasks.program.definition import random_array

    model = models.read(text, batch)
    rng = np.random.default_rng(0)
    shapes = [([int(e) for e in variable.ty.shape], str(variable.ty.dtype)) for variable in model["main"].params]
    inputs = [random_array(rng, shape, dtype) for shape, dtype in shapes]
    np.savez(scratch / "inputs.npz", **{str(place): each for place, each in enumerate(inputs)})
    variants = dict(compiled)
    if text.endswith(".onnx") and _installed("onnxruntime"):
        variants["onnxruntime"] = Path(text)
    progress.say(f"timing the model in turns: {', '.join(variants)}")
    _untuned(model, device).export_library(str(scratch / "untuned.so"))
    latency = {"untuned": runner.run(scratch / "untuned.so", scratch / "inputs.npz", scratch / "untuned.npz", 0)}
    times = {name: [] for name in variants}
    for turn in range(rounds):
        for place, (name, path) in list(enumerate(variants.items()))[:: 1 if turn % 2 else -1]:
            times[name].append(runner.run(path, scratch / "inputs.npz", scratch / f"{place}.npz"))
    latency.update({name: median(each) for name, each in times.items()})
    answers = [np.load(scratch / "untuned.npz"), *(np.load(scratch / f"{place}.npz") for place in range(len(variants)))]
    expected = [answers[0][name] for name in answers[0].files]
    np.savez(
        output / "example.npz",
        **{f"input{place:03d}": each for place, each in enumerate(inputs)},
        **{f"output{place:03d}": each for place, each in enumerate(expected)},
    )
    differences = [_difference([each[name] for name in each.files], expected) for each in answers[1:]]
    return {"latency_ms": latency, "differences": dict(zip(variants, differences))}


def _untuned(model, device):
    """The model as TVM compiles it by itself; on a GPU with TVM's default schedules, as it does not run without."""
    import tvm

    if device.kind == "cuda":
        return lower.build(lower.lowered(model, device), [], device)
    return tvm.compile(model, target=target_of(device))


def _difference(answer, expected):
    import numpy as np

    return max(
        float(np.abs(a.astype(np.float64) - b.astype(np.float64)).max() / max(np.abs(b).max(), 1e-30))
        for a, b in zip(answer, expected)
    )


def _installed(name):
    from importlib.util import find_spec

    return find_spec(name) is not None
