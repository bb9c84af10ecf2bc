"""What an experiment found: a table of the best configurations, and the curve of the best so far."""

from collections import Counter
from itertools import accumulate
from pathlib import Path

from .measure.codes import ErrorCode
from .space.nested import flatten
from .study import records


def load(folder):
    """An experiment's records, one for each configuration: the last one, but no failure after a success."""
    return records.latest(records.read(Path(folder) / records.RECORDS))


def summary(found):
    """One line: how many trials, how they ended, and the best of them."""
    ends = Counter(record.get("error_code", 8) for record in found)
    text = ", ".join(f"{count} {ErrorCode(code).name.lower()}" for code, count in sorted(ends.items()))
    best = records.best(found)
    return f"{len(found)} trials ({text or 'none'}); " + (f"best {best['tflops']:.4g} TFLOPS" if best else "none succeeded")


def failures(found):
    """A line for each way in which trials failed, with the last one's error; empty if none did."""
    last = {record.get("error_code", 8): record.get("error", "") for record in found if not records.succeeded(record)}
    return [f"{ErrorCode(code).name.lower()}: {error}" for code, error in sorted(last.items())]


def table(found, top=10):
    """The best configurations as text, best first."""
    ranked = sorted(filter(records.succeeded, found), key=lambda record: -record["tflops"])[:top]
    rows = [("rank", "TFLOPS", "latency ms", "spread", "compile s", "trial", "configuration")]
    for rank, record in enumerate(ranked, 1):
        config = "  ".join(f"{name} {_plain(value)}" for name, value in flatten(record["config"]).items())
        rows.append(
            (
                str(rank),
                f"{record['tflops']:.4g}",
                _number(record, "latency_ms", ".4g"),
                _number(record, "spread", ".1%"),
                _number(record, "compile_seconds", ".2f"),
                str(record.get("sequence_id", record.get("trial", ""))),
                config,
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column == len(row) - 1 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths))
        ).rstrip()
        for row in rows
    )


def tell(found, path, title, say, top=10):
    """Say what was found, line by line, and write the curve to ``path``."""
    say(summary(found))
    say(table(found, top))
    for failure in failures(found):
        say(failure)
    plot(found, path, title)


def plot(found, path, title):
    """Write the best TFLOPS so far over the trials, in the order in which they ended, as PNG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    tflops = [record["tflops"] if records.succeeded(record) else 0.0 for record in found]
    trials = range(1, len(tflops) + 1)
    figure, axes = pyplot.subplots(figsize=(7, 4), dpi=120)
    marks = {"trial": (".", "tab:gray", [(t, v) for t, v in zip(trials, tflops) if v > 0])}
    marks["failed trial"] = ("x", "tab:red", [(t, v) for t, v in zip(trials, tflops) if v == 0])
    for label, (marker, color, points) in marks.items():
        if points:
            axes.plot(*zip(*points), marker, color=color, alpha=0.6, label=label)
    axes.step(trials, list(accumulate(tflops, max)), where="post", color="tab:blue", label="best so far")
    axes.set(xlabel="trial", ylabel="TFLOPS", title=title)
    axes.set_ylim(bottom=0)
    axes.legend(loc="lower right")
    axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)


def _plain(value):
    return "x".join(map(str, value)) if isinstance(value, list) else str(value)


def _number(record, name, form):
    value = record.get(name)
    return format(value, form) if isinstance(value, (int, float)) else ""
