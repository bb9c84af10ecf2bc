"""Without NNI: a study whose trials this process measures, one after the other."""

import json
import time
from pathlib import Path

from .. import export, report
from ..measure import measure
from ..search import create_search
from ..space import SearchSpace
from ..study import Objective, Study, records


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
    """

    def __init__(self, task, device, search, seed, class_args, path, tags, constraints=()):
        space = SearchSpace.from_json(task.search_space(device), [*task.constraints(device), *constraints])
        start = time.perf_counter()
        made = create_search(search, space, seed=seed, **class_args)
        self.study = Study(made, settle=task.settler(device))
        self._unaccounted = time.perf_counter() - start  # seconds inside the search that no record has yet
        self._task, self._device, self._path, self._tags = task, device, path, tags
        self._place = json.loads(json.dumps({"workload": task.to_dict(), "device": device.label()}))  # as it is read again
        recorded = [record for record in records.read(path) if all(record.get(k) == v for k, v in tags.items())]
        self.known = len(recorded)
        self._recorded = iter(recorded)
        self._accounted = 0.0
        self._best_latency = None

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
        record = next(self._recorded, None)
        if record is None:
            record = self._new_record(config)
        elif {**record, "config": config, **self._place} != record:
            raise ValueError("the output folder holds the records of another comparison; name another one")
        self._unaccounted = 0.0
        fitness = Objective().of_record(record)
        if records.succeeded(record):
            self._best_latency = min(self._best_latency or record["latency_ms"], record["latency_ms"])
        return fitness, record

    def _new_record(self, config):
        start = time.perf_counter()
        measured = measure(self._task, config, self._device, best_latency_ms=self._best_latency)
        record = {
            **self._tags,
            "trial": len(self.study.search.results) + 1,
            "task": self._task.id,
            "config": config,
            **measured,
            "search_seconds": self._unaccounted,
            "trial_seconds": time.perf_counter() - start,
            **self._place,
        }
        records.append(self._path, record)
        return record


def tune(task, device, search, class_args, trials, output, progress):
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
    path = output / records.RECORDS
    study = LocalStudy(task, device, search, 0, class_args, path, {"search": search})
    start, best = time.monotonic(), None
    for done, record in enumerate(study.run(trials), 1):
        best = records.best(filter(None, (best, record)))
        measured = done - study.known
        if measured > 0:
            left = (time.monotonic() - start) / measured * (trials - done)
            so_far = f"{best['tflops']:.4g} TFLOPS" if best else "none yet"
            progress.show(f"{done}/{trials} trials, best {so_far}, {left:.0f} s left")
    found = report.load(output)
    report.tell(found, output / "report.png", f"{search} on {task.operator}", progress.say)
    export.finish(found, output, progress)
