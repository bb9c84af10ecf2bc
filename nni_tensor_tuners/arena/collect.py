"""Random configurations of several tasks, measured and described: what a model of programs learns from."""

import time
from pathlib import Path

from ..frontends.local import LocalStudy
from ..study import records


def collect(tasks, device, constraints, seed, trials, features, output, progress):
    """Measure configurations that are drawn uniformly, those of every task in turns, and record them with their features.

    Every trial is recorded in ``output`` as it ends; the same call goes on where an interrupted one stopped.

    Parameters
    ----------
    tasks
        Name -> `Task`.
    device, constraints
        Where; constraints beyond the device's.
    seed, trials
        Of the draws of each task, and how many.
    features
        Kinds of features (`tasks.features.FEATURES`) that records have.
    output
        A folder that exists.
    progress
        A `cli.progress.Progress`.

    Returns
    -------
    dict
        Name -> records, those of earlier calls included; interrupted, what there is.
    """
    path = Path(output) / records.RECORDS
    lives = {}
    for name, task in tasks.items():
        study = LocalStudy(task, device, "Random", seed, {}, path, {"name": name, "seed": seed}, constraints, features=features)
        lives[name] = (study, study.run(trials))
    left = sum(trials - min(study.known, trials) for study, _ in lives.values())
    found = {name: [] for name in tasks}
    start, measured = time.monotonic(), 0
    try:
        for trial in range(trials):
            for name, (study, measuring) in lives.items():
                record = next(measuring, None)
                if record is None:
                    continue  # its space is used up
                found[name].append(record)
                if trial >= study.known:
                    measured += 1
                    seconds = (time.monotonic() - start) / measured * (left - measured)
                    progress.show(f"{name}: {trial + 1}/{trials} trials, {seconds:.0f} s left")
    except KeyboardInterrupt:
        progress.say("interrupted; the same command goes on from here")
    return found
