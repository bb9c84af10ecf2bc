"""What an experiment on a network found: where its time goes, where the trials went, and how the estimate fell."""

from ..measure.remote import find_again
from ..report import failures
from ..study import records
from .earlier import first_records, known_records
from .finish import network_of


def tell(found, path, title, say):
    """Say what was found, line by line, and write the curve of the estimate to ``path`` (OpEvo, figure 6)."""
    network = network_of(found)
    device = find_again(found[0]["device"])
    defaults, known = first_records(network, device), known_records(network, device)
    before, after = network.latencies(defaults), network.latencies([*known, *found])
    start = network.estimate(before) if before else found[0]["estimate_ms"]
    say(f"{len(found)} trials on {len(network.tuned)} of {len(network.tasks)} tasks; estimate {start:.4g} ms by default schedules,")
    say(f"{network.estimate(after):.4g} ms by the best known kernels")
    if len(known) > len(defaults):
        say(f"known from earlier experiments: {len(known) - len(defaults)} measurements")
    for line in table(network, found, before, after):
        say(line)
    for name, why in network.description["left"].items():
        say(f"not tuned: {name}: {why}")
    for failure in failures(found):
        say(failure)
    plot(found, start, path, title)


def table(network, found, before, after):
    """Lines, a task each, those that take most time first; those that take less than a percent and were not tuned in one.

    What is left to gain is, at most, what a task takes longer than at the rate of the fastest task (in GFLOPS).
    """
    total = network.estimate(after)
    trials = {}
    for record in found:
        name = record["config"]["task"]["_name"]
        trials[name] = trials.get(name, 0) + 1
    took = {name: count * after.get(name, 0.0) for name, count in network.counts.items()}
    fastest = max((network.flop[name] / each for name, each in after.items()), default=0.0)
    rows, small, gains = [("task", "runs", "default ms", "best ms", "GFLOPS", "share", "to gain", "trials")], [], 0.0
    for name in sorted(took, key=lambda name: -took[name]):
        if name not in trials and took[name] < 0.01 * total:
            small.append(name)
            continue
        best = after.get(name)
        gain = took[name] - network.counts[name] * network.flop[name] / fastest if best else 0.0
        gains += gain
        rows.append(
            (
                name,
                str(network.counts[name]),
                f"{before[name]:.4f}" if name in before else "",
                f"{best:.4f}" if best else "",
                f"{network.flop[name] / best / 1e6:.1f}" if best else "",
                f"{took[name] / total:.1%}" if total else "",
                f"{gain / total:.1%}" if total else "",
                str(trials.get(name, 0)),
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "  ".join(cell.ljust(width) if column == 0 else cell.rjust(width) for column, (cell, width) in enumerate(zip(row, widths)))
        for row in rows
    ]
    if small:
        share = sum(took[name] for name in small) / total
        lines.append(f"left at their default schedules, {share:.1%} together: {', '.join(small)}")
    if total:
        lines.append(f"at the rate of the fastest task the network would take {total - gains:.4g} ms")
    return lines


def plot(found, start, path, title):
    """Write the estimated latency over the trials, in the order in which they ended, as PNG."""
    import matplotlib

    matplotlib.use("Agg")
    from itertools import accumulate

    from matplotlib import pyplot

    estimates = [start, *(record["estimate_ms"] for record in found if "estimate_ms" in record)]
    figure, axes = pyplot.subplots(figsize=(7, 4), dpi=120)
    axes.step(range(len(estimates)), list(accumulate(estimates, min)), where="post", color="tab:blue")
    failed = [place for place, record in enumerate(found, 1) if not records.succeeded(record)]
    axes.plot(failed, [min(estimates)] * len(failed), "x", color="tab:red", label="failed trial")
    axes.set(xlabel="trial", ylabel="estimated latency of the network, ms", title=title)
    if failed:
        axes.legend(loc="upper right")
    axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)
