"""Without NNI: a study whose trials this process measures, one after the other."""

import functools
import json
import time
from pathlib import Path

from .. import report
from ..measure import measure
from ..search import create_search
from ..space import SearchSpace
from ..study import Objective, Study, records
from ..tasks.recorded import FEATURES_VERSION
from ..tasks.shared import write_whole
from .network import finish, of_network, tell

# In the folder of a study: the records that it began with.
KNOWN = "known.jsonl"


class LocalStudy:
    """One search on one task, measured here; every trial is recorded as it ends.

    The same study goes on where an interrupted one stopped: its search proposes what is recorded once more, and is told what
    was measured, until the records end.

    Parameters
    ----------
    task, device
        What is measured, and where.
    search, seed, class_args
        As for `create_search`.
    path
        The records file; several studies may share one.
    tags
        Fields that tell this study's records from those of others.
    constraints
        Expressions beyond the device's.
    known
        Records that the search is told before its first trial.
    features
        Kinds of features of programs (`tasks.features.FEATURES`) that records are given, for models of other tasks.
    histories
        Function from a kind of features, or None, to what the search is given of elsewhere, as `Search.transfer` takes it.
    """

    def __init__(self, task, device, search, seed, class_args, path, tags, constraints=(), known=(), features=(), histories=None):
        space = SearchSpace.from_json(task.search_space(device), [*task.constraints(device), *constraints])
        start = time.perf_counter()
        made = create_search(search, space, seed=seed, **class_args)
        if histories:
            made.transfer(histories(made.transfer_features))
        describe = functools.partial(task.describer, device)
        self.study = Study(made, settle=task.settler(device), first=task.first(device), describe=describe)
        self._describers = {kind: describe(kind) for kind in features}
        self._objective = Objective(task.optimize_mode)
        self.study.warm_start(records.history(known, self._objective, task.config_of))
        self._unaccounted = time.perf_counter() - start  # seconds inside the search that no record has yet
        self._task, self._device, self._path, self._tags = task, device, path, tags
        recorded = [record for record in records.read(path) if all(record.get(k) == v for k, v in tags.items())]
        self.known = len(recorded)
        self._recorded = iter(recorded)
        self._accounted = 0.0
        self._best_latency = {}  # by task
        self._trials = []  # records of all trials, in order

    def run(self, trials):
        """Measure so many trials, those recorded before included.

        Yields
        ------
        dict
            Each trial's record.

        Raises
        ------
        ValueError
            If the records are those of something else, or if no configuration satisfies the constraints.
        """
        for trial in self.study.run(self._measure, trials):
            yield trial.value

    def _measure(self, config):
        self._unaccounted += self.study.seconds - self._accounted
        self._accounted = self.study.seconds
        kernel, own_config = self._task.part(config)
        # As it is read again.
        place = json.loads(json.dumps({"workload": kernel.to_dict(), "device": self._device.label()}))
        record = next(self._recorded, None)
        if record is None:
            record = self._new_record(config, kernel, own_config, place)
        elif {**record, "config": config, **place} != record:
            raise ValueError("the output folder holds the records of another comparison; name another one")
        self._unaccounted = 0.0
        self._trials.append(record)
        if records.succeeded(record):
            best = self._best_latency.get(kernel.id, record["latency_ms"])
            self._best_latency[kernel.id] = min(best, record["latency_ms"])
        return self._objective.of_record(record), record

    def _new_record(self, config, kernel, own_config, place):
        start = time.perf_counter()
        best = self._best_latency.get(kernel.id)
        measured = measure(kernel, own_config, self._device, best_latency_ms=best, cold=self._task.cold)
        record = {
            **self._tags,
            "trial": len(self._trials) + 1,
            "task": kernel.id,
            "config": config,
            **measured,
            "search_seconds": self._unaccounted,
            "trial_seconds": time.perf_counter() - start,
            **place,
        }
        record.update(of_network(self._task, self._device, self._trials, record))
        if self._describers:
            described = {kind: describe(config) for kind, describe in self._describers.items()}
            record["features"] = {kind: found.tolist() for kind, found in described.items() if found is not None}
            record["features_version"] = FEATURES_VERSION
        records.append(self._path, record)
        return record


def tune(task, device, search, class_args, trials, output, progress, known=()):
    """Run one search on a task in this process, then report and export the best kernel.

    Parameters
    ----------
    task, device
        What is tuned, and where.
    search, class_args
        As for `create_search`.
    trials
        How many, those recorded before included.
    output
        A folder for records, report and kernel; the same call goes on from what is in it.
    known
        Records that the search is told before its first trial. They are kept in the folder: a call that goes on knows the same.
    progress
        With ``show(text)`` for the state of things and ``say(text)`` for what stays, as `cli.progress.Progress`.

    Raises
    ------
    KeyboardInterrupt
        When interrupted; nothing measured is lost.
    ValueError
        If nothing succeeded, or the folder has the records of something else.
    """
    output = Path(output)
    output.mkdir(parents=True, exist_ok=True)
    path, kept = output / records.RECORDS, output / KNOWN
    if not path.is_file():
        write_whole(kept, "".join(json.dumps(record) + "\n" for record in known))
    known = records.read(kept)
    study = LocalStudy(task, device, search, 0, class_args, path, {"search": search}, known=known)
    start, best = time.monotonic(), None
    for done, record in enumerate(study.run(trials), 1):
        best = records.best(filter(None, (best, record)))
        measured = done - study.known
        if measured > 0:
            left = (time.monotonic() - start) / measured * (trials - done)
            so_far = f"{best['tflops']:.4g} TFLOPS" if best else "none yet"
            if "estimate_ms" in record:
                so_far = f"estimate {record['estimate_ms']:.4g} ms"
            progress.show(f"{done}/{trials} trials, best {so_far}, {left:.0f} s left")
    found = report.load(output)
    tell(found, output / "report.png", f"{search} on {task.operator}", progress.say)
    finish(found, output, progress)
