"""Figures of runs: the best so far, over the trials and over the wall-clock."""

from ..measure import ErrorCode
from ..study import records
from .clock import by_time, grid
from .summary import best_at


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


def plot_time(runs, path, title, ylabel, end, points=200):
    """Write the best so far over wall-clock time as PNG, up to ``end`` seconds: mean over seeds, standard error shaded (NoSE's
    figures 5 and 8).
    """
    figure, axes = _figure()
    times = grid(end, points)
    for number, row in enumerate(by_time(runs, times)):
        low, high = zip(*((best - error, best + error) for best, error in zip(row["best"], row["error"])))
        axes.plot(times, row["best"], color=_color(number), label=row["search"])
        axes.fill_between(times, low, high, color=_color(number), alpha=0.15, linewidth=0)
    axes.set(xlabel="seconds", ylabel=ylabel, title=title, xlim=(0, end), ylim=(0, None))
    _finish(figure, axes, path)


def plot_ends(found, path, title):
    """Write how trials ended as PNG: the share of each error code by count and by time (NoSE's figures 3 and 7)."""
    figure, axes = _figure()
    codes = sorted({record["error_code"] for record in found})
    kinds = {"of the trials": lambda record: 1.0, "of their time": lambda record: record["trial_seconds"]}
    for place, (label, weight) in enumerate(kinds.items()):
        total = sum(map(weight, found))
        shares = [sum(weight(r) for r in found if r["error_code"] == code) / total for code in codes]
        axes.bar([x + (place - 0.5) * 0.4 for x in range(len(codes))], shares, 0.4, label=label)
    axes.set_xticks(range(len(codes)), [f"{code}\n{ErrorCode(code).words}" for code in codes])
    axes.set(xlabel="error code", ylabel="share", title=title, ylim=(0, 1))
    _finish(figure, axes, path, "best")


def plot_histogram(found, path, title):
    """Write how many valid configurations have how many GFLOPS as PNG (NoSE's figure 4)."""
    figure, axes = _figure()
    axes.hist([1e3 * record["tflops"] for record in found if records.succeeded(record)], 50, label="valid configurations")
    axes.set(xlabel="GFLOPS", ylabel="configurations", title=title, xlim=(0, None))
    _finish(figure, axes, path, "best")


def _figure():
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot.subplots(figsize=(7, 4.5), dpi=120)


def _color(number):
    return f"C{number % 10}"


def _finish(figure, axes, path, legend="lower right"):
    from matplotlib import pyplot

    axes.legend(loc=legend)
    axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)
