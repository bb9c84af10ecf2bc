"""Comparing searches: naming them, and turning their runs into a table, a CSV file and figures.

A *run* is one search with one seed on one landscape or workload, as plain data: ``where`` (the landscape's or workload's name),
``search`` (as it was named), ``seed``, ``best`` (best so far after each trial), ``failed`` (trials), ``seconds`` (inside the
search, in all) and ``longest`` (of its calls); live runs also have ``clock`` (seconds since the start after each trial).
"""

import csv
import json
from statistics import mean, stdev

from .search import create_search
from .space import SearchSpace

# Recorded times are noise below this: a configuration this close to the optimum counts as the optimum.
FOUND = 0.999


def parse_search(text):
    """A search and its arguments from ``NAME`` or ``NAME:argument=value:argument=value``.

    Raises
    ------
    ValueError
        In one line, if there is no such search or argument.

    >>> parse_search("OpEvo:parents_size=4")
    ('OpEvo', {'parents_size': 4})
    """
    name, *pairs = text.split(":")
    class_args = {}
    for pair in pairs:
        argument, equals, value = pair.partition("=")
        if not equals:
            raise ValueError(f"search {text!r}: expected NAME:argument=value, got {pair!r}")
        class_args[argument] = _value(value)
    check_search(text, name, class_args)
    return name, class_args


def _value(text):
    try:
        return json.loads(text)
    except ValueError:
        return text


def check_search(text, name, class_args):
    """Raise ValueError, in one line that begins with ``text``, if there is no such search or argument."""
    try:
        create_search(name, SearchSpace.from_json({"x": {"_type": "choice", "_value": [0]}}), **class_args)
    except ValueError as error:
        raise ValueError(f"search {text!r}: {error}") from None


def summarise(runs, counts):
    """Rows of a table: for each search in the order of its first run, the mean over runs.

    Parameters
    ----------
    runs
        Runs that belong together.
    counts
        Trial counts.

    Returns
    -------
    list of dict
        ``search``, ``runs``, ``best`` and ``spread`` (lists along ``counts``; mean, and standard deviation over runs),
        ``found`` (fraction of runs that came within 0.1 % of the value 1), ``failed`` (mean number of trials), ``seconds``
        (mean), ``longest`` (maximum).
    """
    rows = []
    for search in dict.fromkeys(run["search"] for run in runs):
        own = [run for run in runs if run["search"] == search]
        at = [[best_at(run, count) for run in own] for count in counts]
        rows.append(
            {
                "search": search,
                "runs": len(own),
                "best": [mean(values) for values in at],
                "spread": [stdev(values) if len(values) > 1 else 0.0 for values in at],
                "found": mean(run["best"][-1] >= FOUND for run in own),
                "failed": mean(run["failed"] for run in own),
                "seconds": mean(run["seconds"] for run in own),
                "longest": max(run["longest"] for run in own),
            }
        )
    return rows


def best_at(run, count):
    """The best of a run's first ``count`` trials; of all, where the space ended sooner; 0 where none succeeded."""
    return run["best"][min(count, len(run["best"])) - 1]


def table(rows, counts, live=False):
    """The rows of `summarise` as text: fractions of the optimum, or, of live runs, TFLOPS with their standard deviations."""
    columns = ["search", *(f"@{count}" for count in counts), *["optimum"] * (not live), "failed", "s in search", "longest"]
    lines = [columns]
    for row in rows:
        if live:
            cells = [f"{best:.4f} ± {spread:.4f}" for best, spread in zip(row["best"], row["spread"])]
        else:
            cells = [*(f"{best:.3f}" for best in row["best"]), f"{row['found']:.2f}"]
        lines.append([row["search"], *cells, f"{row['failed']:.1f}", f"{row['seconds']:.2f}", f"{row['longest']:.2f}"])
    widths = [max(len(line[column]) for line in lines) for column in range(len(columns))]
    return "\n".join(
        line[0].ljust(widths[0]) + "".join("  " + cell.rjust(width) for cell, width in zip(line[1:], widths[1:]))
        for line in lines
    )


def write_csv(runs, path, counts=None):
    """A line per run: what it was, and the best so far after each trial, or, where ``best`` has only these, after ``counts``."""
    counts = counts or range(1, max(len(run["best"]) for run in runs) + 1)
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        columns = ["where", "search", "seed", "failed", "seconds", "longest"]
        writer.writerow([*columns, *(f"best_{count}" for count in counts)])
        for run in runs:
            numbers = [f"{run['seconds']:.4f}", f"{run['longest']:.4f}", *(f"{value:.6g}" for value in run["best"])]
            writer.writerow([run["where"], run["search"], run["seed"], run["failed"], *numbers])


def plot(runs, path, title, ylabel, start=1):
    """Write the convergence figure as PNG: mean of the best so far over the trials, its standard deviation over seeds shaded.

    Several landscapes are averaged first, seed by seed.
    """
    import numpy as np

    figure, axes = _figure()
    length = max(len(run["best"]) for run in runs)
    for number, search in enumerate(dict.fromkeys(run["search"] for run in runs)):
        by_seed = {}
        for run in (run for run in runs if run["search"] == search):
            by_seed.setdefault(run["seed"], []).append([best_at(run, trial) for trial in range(1, length + 1)])
        curves = np.array([np.mean(curves, axis=0) for curves in by_seed.values()])
        center, spread = curves.mean(axis=0), curves.std(axis=0)
        trials = np.arange(1, length + 1)
        axes.plot(trials, center, color=_color(number), label=search)
        axes.fill_between(trials, center - spread, center + spread, color=_color(number), alpha=0.15, linewidth=0)
    axes.set(xlabel="trials", ylabel=ylabel, title=title, xlim=(start, length))
    # The first trials start near zero, and would squeeze what matters into the top.
    shown = [best_at(run, start) for run in runs]
    axes.set_ylim(bottom=0.95 * sum(shown) / len(shown))
    _finish(figure, axes, path)


def plot_clock(runs, path, title, ylabel):
    """Write the best so far over wall-clock time as PNG, a line per run (lower rows of the OpEvo paper's figures 3 to 5)."""
    figure, axes = _figure()
    for number, search in enumerate(dict.fromkeys(run["search"] for run in runs)):
        for i, run in enumerate(run for run in runs if run["search"] == search):
            axes.step(
                run["clock"],
                run["best"],
                where="post",
                color=_color(number),
                alpha=0.7,
                linewidth=1,
                label=None if i else search,
            )
    axes.set(xlabel="seconds", ylabel=ylabel, title=title, xlim=(0, None), ylim=(0, None))
    _finish(figure, axes, path)


def _figure():
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot.subplots(figsize=(7, 4.5), dpi=120)


def _color(number):
    return f"C{number % 10}"


def _finish(figure, axes, path):
    from matplotlib import pyplot

    axes.legend(loc="lower right")
    axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)
