"""Comparing searches: naming them, and turning their runs into a table, a CSV file and figures.

A *run* is one search with one seed on one landscape or workload, as plain data: ``where`` (the landscape's or workload's name),
``search`` (as it was named), ``seed``, ``best`` (best so far after each trial), ``failed`` (trials), ``seconds`` (inside the
search, in all) and ``longest`` (of its calls); live runs also have ``clock`` (seconds since the start after each trial),
``activities`` and ``ends`` (`clock.add_trial`).
"""

import csv
import json
from statistics import mean, stdev

from ..search import check_class_args

# Recorded times are noise below this: a configuration this close to the optimum counts as the optimum.
FOUND = 0.999
# Of arguments of the search inside another one.
INNER = "inner."


def parse_search(text):
    """A search and its arguments from ``NAME`` or ``NAME:argument=value:inner.argument=value``, the latter one of ``inner_args``.

    Raises
    ------
    ValueError
        In one line, if there is no such search or argument.

    >>> parse_search("OpEvo:parents_size=4")
    ('OpEvo', {'parents_size': 4})
    >>> parse_search("Bansor:inner=OpEvo:inner.parents_size=4")
    ('Bansor', {'inner': 'OpEvo', 'inner_args': {'parents_size': 4}})
    """
    name, *pairs = text.split(":")
    class_args = {}
    for pair in pairs:
        argument, equals, value = pair.partition("=")
        if not equals:
            raise ValueError(f"search {text!r}: expected NAME:argument=value, got {pair!r}")
        if argument.startswith(INNER):
            class_args.setdefault("inner_args", {})[argument.removeprefix(INNER)] = _value(value)
        else:
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
        check_class_args(name, **class_args)
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
    return aligned(lines)


def aligned(lines):
    """Lines of cells as text, the first column flush left, the others right."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
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
