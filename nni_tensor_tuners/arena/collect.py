"""Random configurations of several tasks, measured and described: what a model of programs learns from."""

import time
from pathlib import Path

from ..frontends.local import LocalStudy
from ..study import records
from .turns import in_turns


def collect(tasks, device, constraints, seed, trials, features, output, progress, compilers=1, minutes=None):
    """Measure configurations that are drawn uniformly, those of every task in turns, and record them with their features.

    Every trial is recorded in ``output`` as it ends; the same call goes on where an interrupted one stopped.

    Parameters
    ----------
    tasks
        Name -> `Task`.
    device, constraints
        Where; constraints beyond the device's.
    seed, trials
        Of the draws of each task, and how many; no limit where they are None.
    features
        Kinds of features (`tasks.features.FEATURES`) that records have.
    output
        A folder that exists.
    progress
        A `cli.progress.Progress`.
    compilers
        As for `in_turns`.
    minutes
        After which this call begins no further trial; None for no limit.

    Returns
    -------
    dict
        Name -> records, those of earlier calls included; interrupted, what there is.
    """
    path = Path(output) / records.RECORDS
    studies = {
        name: LocalStudy(task, device, "Random", seed, {}, path, {"name": name, "seed": seed}, constraints, features=features)
        for name, task in tasks.items()
    }
    found, start = {name: [] for name in tasks}, time.monotonic()

    def note(name, record):
        found[name].append(record)
        return f"{name}: {len(found[name])}{f'/{trials}' if trials else ''} trials"

    def left(name):
        return None if minutes is None else max(0.0, start + 60 * minutes - time.monotonic()) / len(tasks)

    in_turns(studies, trials, progress, note, left, compilers)
    return found
