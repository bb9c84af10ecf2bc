"""Runs over the wall-clock: the best so far at a time, what the time went into, and how trials ended.

The time of a run is its own: searching, and its trials from beginning to end. Other runs that are measured in turns with it do
not count, nor does what its trials wait for theirs.
"""

from collections import Counter
from math import sqrt

from ..measure.codes import ErrorCode
from ..study import records
from .summary import aligned, summarise

# What a stage of a trial (`measure.process.STAGES`) is part of.
ACTIVITIES = {
    "start": "waiting",
    "instantiate": "compiling",
    "compile": "compiling",
    "wait": "waiting",
    "run": "timing",
}


def new_run(**tags):
    """A run (`summary`) without trials."""
    return {**tags, "best": [], "clock": [], "failed": 0, "seconds": 0.0, "longest": 0.0, "activities": {}, "ends": {}}


def add_trial(run, record, clock, seconds):
    """Add a trial to a run: when it ended, seconds since the run began, and how long it took.

    The run's ``activities`` are seconds of searching, compiling, timing, waiting; what these leave of ``clock`` is anything else.
    Its ``ends`` are [trials, seconds] by error code.
    """
    succeeded = records.succeeded(record)
    run["failed"] += not succeeded
    run["best"].append(max(run["best"][-1] if run["best"] else 0.0, _worth(record) if succeeded else 0.0))
    run["clock"].append(clock)
    for stage, spent in record.get("stage_seconds", {}).items():
        _add(run["activities"], ACTIVITIES[stage], spent)
    end = run["ends"].setdefault(record.get("error_code", ErrorCode.UNKNOWN_ERROR), [0, 0.0])
    end[0] += 1
    end[1] += seconds


def _worth(record):
    """TFLOPS; of a network, runs a second, estimated by its best known kernels (0 before one is known)."""
    if "network" not in record:
        return record["tflops"]
    return 1e3 / record["estimate_ms"] if record["estimate_ms"] else 0.0


def add_search(run, seconds):
    """Add seconds that the search took to propose or to learn."""
    run["seconds"] += seconds
    run["longest"] = max(run["longest"], seconds)
    _add(run["activities"], "searching", seconds)


def _add(totals, key, amount):
    totals[key] = totals.get(key, 0.0) + amount


def at_times(runs, times):
    """The runs with ``best`` along ``times``, seconds: the best of the trials that had ended by then, 0 where none had."""
    return [{**run, "best": [_best_by(run, time) for time in times]} for run in runs]


def _best_by(run, time):
    return max((best for best, clock in zip(run["best"], run["clock"]) if clock <= time), default=0.0)


def reached(runs):
    """Seconds that every one of the runs has reached."""
    return min(run["clock"][-1] for run in runs)


def grid(end, points):
    """So many times, evenly spaced, the last one ``end``."""
    return [end * point / points for point in range(1, points + 1)]


def by_time(runs, times):
    """The rows of `summarise` along ``times``, seconds, with ``error``, the standard errors of their means."""
    rows = summarise(at_times(runs, times), range(1, len(times) + 1))
    return [{**row, "error": [spread / sqrt(row["runs"]) for spread in row["spread"]]} for row in rows]


def table(runs, times, baseline=None):
    """The best at each of some times, mean over runs and its standard error, as text; and over a baseline's at the same time.

    Parameters
    ----------
    runs
        Of live searches.
    times
        Seconds.
    baseline
        The search whose means the others' are divided by (NoSE, figure 5); None for none.
    """
    rows = by_time(runs, times)
    lines = [["search", *(f"{time:.3g} s" for time in times)]]
    for row in rows:
        lines.append([row["search"], *(f"{b:.4f} ± {e:.4f}" for b, e in zip(row["best"], row["error"]))])
    text = aligned(lines)
    if baseline is None:
        return text
    base = next(row for row in rows if row["search"] == baseline)["best"]
    lines = [[f"over {baseline}", *lines[0][1:]]]
    for row in rows:
        if row["search"] != baseline:
            lines.append([row["search"], *(f"{b / of:.3f}" if of > 0 else "-" for b, of in zip(row["best"], base))])
    return f"{text}\n\n{aligned(lines)}"


def shares(runs):
    """What the time of each search's runs went into, and how their trials ended, by count and by time, as text."""
    kinds = ["searching", "compiling", "timing", "waiting"]
    lines, ends = [["of the time", *kinds, "other"]], [["trials ended with", "", "trials", "of all", "of their time"]]
    for search in dict.fromkeys(run["search"] for run in runs):
        own = [run for run in runs if run["search"] == search]
        total = sum(run["clock"][-1] for run in own) or 1.0
        parts = [sum(run["activities"].get(kind, 0.0) for run in own) / total for kind in kinds]
        lines.append([search, *(f"{part:.1%}" for part in parts), f"{max(0.0, 1 - sum(parts)):.1%}"])
        counts, spent = Counter(), Counter()
        for run in own:
            for code, (count, seconds) in run["ends"].items():
                counts[code] += count
                spent[code] += seconds
        for code, count in sorted(counts.items()):
            parts = count / counts.total(), spent[code] / (spent.total() or 1.0)
            ends.append([search, ErrorCode(code).words, str(count), *(f"{part:.1%}" for part in parts)])
    return f"{aligned(lines)}\n\n{aligned(ends)}"
