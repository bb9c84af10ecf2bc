"""Comparing searches live: the same measuring code, budget and seeds for all, in turns or as NNI experiments."""

import json
import time
from pathlib import Path

import yaml

from .. import export, report
from ..frontends.local import LocalStudy
from ..frontends.nni import tune
from ..frontends.nni.check import check
from ..frontends.nni.experiment import write, write_folder
from ..frontends.nni.manager import Manager, register
from ..study import records
from ..tasks.network import Network
from .clock import ACTIVITIES, add_search, add_trial, new_run
from .turns import in_turns


def compare(
    task, device, constraints, searches, seeds, trials, output, progress, histories=None, minutes=None, compilers=1, known=()
):
    """Run searches in turns: every search and seed gets its first trial, then every one its second, and so on.

    Machine noise falls on all alike. Every trial is recorded in ``output`` as it ends; the same call goes on where an
    interrupted one stopped.

    Parameters
    ----------
    task, device, constraints
        What is measured, and where; constraints beyond the device's.
    searches
        label -> (name, class_args). For a network they search inside its tasks, which a `TaskScheduler` chooses among.
    seeds, trials
        How many; no limit to the trials where they are None.
    output
        A folder that exists.
    progress
        A `cli.progress.Progress`.
    minutes
        Wall-clock of each run, its own searching and trials, after which it gets no further trial; None for no limit.
    histories
        label -> what that search is given of elsewhere, as for `LocalStudy`; those left out, nothing.
    compilers
        As for `in_turns`.
    known
        Records that every search is told before its first trial.

    Returns
    -------
    list
        The runs; interrupted, what there is of them.
    """
    path = Path(output) / records.RECORDS
    studies, runs = {}, {}
    for seed in range(seeds):
        for label, (name, class_args) in searches.items():
            if isinstance(task, Network):
                name, class_args = _inside(task, name, class_args)
            tags = {"search": label, "seed": seed}
            learned = (histories or {}).get(label)
            study = LocalStudy(task, device, name, seed, class_args, path, tags, constraints, known, histories=learned)
            studies[label, seed], runs[label, seed] = study, new_run(**tags)

    def note(key, record):
        run = runs[key]
        before = run["clock"][-1] if run["clock"] else 0.0
        record, seconds = _own(record)
        add_search(run, record["search_seconds"])
        add_trial(run, record, before + record["search_seconds"] + seconds, seconds)
        best = max(run["best"][-1] for run in runs.values() if run["best"])
        return f"trial {len(run['best'])}{f'/{trials}' if trials else ''} of each, best {best:.4g} {unit_of(task)}"

    def left(key):
        return None if minutes is None else max(0.0, 60 * minutes - (runs[key]["clock"] or [0.0])[-1])

    in_turns(studies, trials, progress, note, left, compilers)
    measured = [run for run in runs.values() if run["best"]]
    return sorted(measured, key=lambda run: list(searches).index(run["search"]))


def _inside(network, name, class_args):
    """A search for a network, that of its tasks included, given one for the inside of tasks."""
    if name != "TaskScheduler":
        class_args = {"inner": name, "inner_args": class_args or None}
    return "TaskScheduler", {**class_args, **network.scheduling()}


def unit_of(task):
    """Of what the searches are compared by."""
    return "runs/s" if isinstance(task, Network) else "TFLOPS"


def _own(record):
    """A record without the stages that wait, mostly for the trials of other runs, and what its trial took without them."""
    stages = record.get("stage_seconds", {})
    own = {stage: seconds for stage, seconds in stages.items() if ACTIVITIES[stage] != "waiting"}
    return {**record, "stage_seconds": own}, record["trial_seconds"] - sum(stages.values()) + sum(own.values())


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
        A `cli.progress.Progress`.

    Returns
    -------
    (list, float)
        The runs with ``best`` along ``counts``, in TFLOPS, 0 where nothing could be timed. And NumPy's TFLOPS; None of a program.
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


def compare_on_nni(
    name, arguments, task, device, constraints, searches, seeds, trials, output, progress, minutes=None, compilers=None
):
    """Run every search and seed as an NNI experiment of its own, one after the other.

    Parameters
    ----------
    name, arguments
        The experiments' name, and the trial's arguments that name the task.
    task, device, constraints, searches, seeds, trials, output
        As for `compare`.
    progress
        A `cli.progress.Progress`.
    minutes
        NNI's maxExperimentDuration; None for no limit.
    compilers
        NNI's trialConcurrency; None for that of `write_folder`.

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
                write_folder(folder, name, arguments, task, [device], searches=[search])
                path = folder / f"{search.lower()}.yml"
                _specialise(path, {**class_args, "seed": seed}, device.kind, constraints, trials, minutes, compilers)
                started = time.time()
                manager, problem = tune.run_to_end(lambda path=path: Manager.create(path), progress)
                if problem:
                    raise ValueError(f"{label}, seed {seed}: {problem}")
                runs.append(_nni_run(manager.folder, started, search=label, seed=seed))
    except KeyboardInterrupt:
        progress.say("interrupted")
    measured = [run for run in runs if run["best"]]
    return sorted(measured, key=lambda run: list(searches).index(run["search"]))


def _specialise(path, class_args, kind, constraints, trials, minutes, compilers):
    """Give a written experiment file the arguments, constraints and limits of this comparison."""
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    content["tuner"]["classArgs"].update(class_args)
    content["tuner"]["classArgs"]["constraints"][kind] += constraints
    del content["maxTrialNumber"]
    if trials is not None:
        content["maxTrialNumber"] = trials
    if compilers is not None:
        content["trialConcurrency"] = compilers
    if minutes is not None:
        content["maxExperimentDuration"] = f"{max(1, round(60 * minutes))}s"
    write(path, content)
    check(path)


def _nni_run(folder, started, **tags):
    run = new_run(**tags)
    for record in report.load(folder):
        add_trial(run, record, record.get("time", started) - started, sum(record.get("stage_seconds", {}).values()))
    for event in records.read(folder / records.JOURNAL):
        if event["event"] == "ask":
            add_search(run, event.get("seconds", 0.0))
    return run
