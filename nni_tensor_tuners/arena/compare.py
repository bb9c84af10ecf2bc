"""Comparing searches live: the same measuring code, budget and seeds for all, in turns or as NNI experiments."""

import json
import time
from pathlib import Path

import yaml

from . import experiment, export, records, report, tune
from .manager import Manager, register
from .measure import measure
from .schedules import get_template
from .search import Exhausted, create_search
from .space import SearchSpace
from .workloads import to_dict


class LiveRun:
    """One search with one seed on a workload; a run as `arena` describes it, with ``best`` in TFLOPS.

    Parameters
    ----------
    label, name, class_args, seed
        What it is called, and the search as for `create_search`.
    workload, device, constraints
        What is measured, and where; constraints beyond the device's.
    recorded
        Records of its trials so far, in order, when it goes on after an interruption.
    """

    def __init__(self, label, name, class_args, seed, workload, device, constraints, recorded):
        template = get_template(workload, device.kind)
        space = SearchSpace.from_json(template.search_space(workload), [*template.constraints(workload, device), *constraints])
        start = time.perf_counter()
        self._search = create_search(name, space, seed=seed, **class_args)
        self._spent = time.perf_counter() - start  # in the search, since the last record
        self._workload = workload
        self._device = device
        self._place = {"workload": to_dict(workload), "device": device.label()}
        self._recorded = recorded
        self._best_latency = None
        self.over = False
        self.run = {"search": label, "seed": seed, "best": [], "clock": [], "failed": 0, "seconds": 0.0, "longest": 0.0}

    def step(self):
        """One trial; returns its record, or None where the space is exhausted or the trial had been recorded."""
        done = len(self.run["best"])
        start = time.perf_counter()
        try:
            (config,) = self._search.ask(1)
        except Exhausted:
            if done == 0:
                raise ValueError("constraints: no configuration satisfies them") from None
            self.over = True
            return None
        self._spent += time.perf_counter() - start
        known = self._recorded[done] if done < len(self._recorded) else None
        if known is not None and {**known, "config": config, **self._place} != known:
            raise ValueError("the output folder holds the records of another comparison; name another one")
        record = known or self._measure(config, done + 1)
        start = time.perf_counter()
        self._search.tell(config, record["tflops"] if records.succeeded(record) else None)
        self._spent = time.perf_counter() - start
        self._account(record)
        return record if known is None else None

    def _measure(self, config, trial):
        start = time.perf_counter()
        measured = measure(self._workload, config, self._device, best_latency_ms=self._best_latency)
        return {
            "search": self.run["search"],
            "seed": self.run["seed"],
            "trial": trial,
            "config": config,
            **measured,
            "search_seconds": self._spent,
            "trial_seconds": time.perf_counter() - start,
            **self._place,
        }

    def _account(self, record):
        run = self.run
        extend(run, record, (run["clock"][-1] if run["clock"] else 0.0) + record["search_seconds"] + record["trial_seconds"])
        run["seconds"] += record["search_seconds"]
        run["longest"] = max(run["longest"], record["search_seconds"])
        if records.succeeded(record):
            self._best_latency = min(self._best_latency or record["latency_ms"], record["latency_ms"])


def extend(run, record, clock):
    """Add a trial to a run."""
    succeeded = records.succeeded(record)
    run["failed"] += not succeeded
    run["best"].append(max(run["best"][-1] if run["best"] else 0.0, record["tflops"] if succeeded else 0.0))
    run["clock"].append(clock)


def compare(workload, device, constraints, searches, seeds, trials, output, progress):
    """Run searches in turns: every search and seed gets its first trial, then every one its second, and so on.

    Machine noise falls on all alike. Every trial is recorded in ``output`` as it ends; the same call goes on where an
    interrupted one stopped.

    Parameters
    ----------
    workload, device, constraints
        What is measured, and where; constraints beyond the device's.
    searches
        label -> (name, class_args).
    seeds, trials
        How many.
    output
        A folder that exists.
    progress
        A `tune.Progress`.

    Returns
    -------
    list
        The runs; interrupted, what there is of them.
    """
    path = Path(output) / records.RECORDS
    found = records.read(path)
    lives = []
    for seed in range(seeds):
        for label, (name, class_args) in searches.items():
            recorded = [record for record in found if (record.get("search"), record.get("seed")) == (label, seed)]
            lives.append(LiveRun(label, name, class_args, seed, workload, device, constraints, recorded))
    start, measured, total = time.monotonic(), 0, trials * len(lives) - min(len(found), trials * len(lives))
    try:
        for trial in range(trials):
            turn = trial % len(lives)  # nobody always comes first
            for live in lives[turn:] + lives[:turn]:
                record = None if live.over else live.step()
                if record is not None:
                    records.append(path, record)
                    measured += 1
                    left = (time.monotonic() - start) / measured * (total - measured)
                    best = max(each.run["best"][-1] for each in lives if each.run["best"])
                    progress.show(f"trial {trial + 1}/{trials} of each, best {best:.4g} TFLOPS, {left:.0f} s left")
    except KeyboardInterrupt:
        progress.say("interrupted; the same command goes on from here")
    return [live.run for live in sorted(lives, key=lambda live: list(searches).index(live.run["search"])) if live.run["best"]]


def time_again(runs, found, counts, rounds, progress):
    """What each run would have been left with after so many trials, timed again.

    The best of many noisy timings is a lucky one, and the luckier the more they scatter. These take turns, each time in a fresh
    process.

    Parameters
    ----------
    runs
        The runs.
    found
        Records of their trials.
    counts
        Numbers of trials.
    rounds
        How often each configuration is timed; the median counts.
    progress
        A `tune.Progress`.

    Returns
    -------
    (list, float)
        The runs with ``best`` along ``counts``, in TFLOPS, 0 where nothing could be timed. And NumPy's TFLOPS.
    """
    leaders = {}
    for run in runs:
        own = [record for record in found if (record["search"], record["seed"]) == (run["search"], run["seed"])]
        for count in counts:
            leaders[run["search"], run["seed"], count] = records.best(own[:count])
    candidates = {_named(record): record for record in leaders.values() if record}
    timed, numpy_tflops = export.time_again(list(candidates.values()), rounds, progress.show)
    tflops = {_named(record): record["retimed_tflops"] for record in timed}
    best = {key: tflops.get(_named(record), 0.0) if record else 0.0 for key, record in leaders.items()}
    return [{**run, "best": [best[run["search"], run["seed"], count] for count in counts]} for run in runs], numpy_tflops


def _named(record):
    return json.dumps(record["config"], sort_keys=True)


def compare_on_nni(name, arguments, workload, device, constraints, searches, seeds, trials, output, code, progress):
    """Run every search and seed as an NNI experiment of its own, one after the other.

    Parameters
    ----------
    name, arguments
        The experiments' name, and the trial script's arguments that name the workload.
    workload, device, constraints, searches, seeds, trials, output
        As for `compare`.
    code
        The folder of the trial scripts.
    progress
        A `tune.Progress`.

    Returns
    -------
    list
        The runs; ``seconds`` are those of proposing. Interrupted, those that have ended.
    """
    register()
    runs = []
    try:
        for seed in range(seeds):
            for label, (search, class_args) in searches.items():
                folder = Path(output) / "nni" / f"{''.join(c if c.isalnum() else '-' for c in label)}-{seed}"
                experiment.write_folder(folder, name, arguments, workload, [device], code)
                path = folder / f"{search.lower()}.yml"
                _specialise(path, {**class_args, "seed": seed}, device.kind, constraints, trials)
                started = time.time()
                manager, problem = tune.run_to_end(lambda path=path: Manager.create(path), progress)
                if problem:
                    raise ValueError(f"{label}, seed {seed}: {problem}")
                runs.append({"search": label, "seed": seed, **_nni_run(manager.folder, started)})
    except KeyboardInterrupt:
        progress.say("interrupted")
    return sorted(runs, key=lambda run: list(searches).index(run["search"]))


def _specialise(path, class_args, kind, constraints, trials):
    """Give a written experiment file the arguments, constraints and number of trials of this comparison."""
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    content["tuner"]["classArgs"].update(class_args)
    content["tuner"]["classArgs"]["constraints"][kind] += constraints
    content["maxTrialNumber"] = trials
    path.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    experiment.check(path)


def _nni_run(folder, started):
    run = {"best": [], "clock": [], "failed": 0}
    for record in report.load(folder):
        extend(run, record, record.get("time", started) - started)
    asked = [event.get("seconds", 0.0) for event in records.read(folder / records.JOURNAL) if event["event"] == "ask"]
    return {**run, "seconds": sum(asked), "longest": max(asked, default=0.0)}
