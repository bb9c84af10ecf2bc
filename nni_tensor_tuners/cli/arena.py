"""The commands that compare searches, and the one that collects what their models learn from."""

import functools
import time
from pathlib import Path

from .. import report
from ..search import SEARCHES
from ..search.base import CONFIGURATION, SEEN, TREE
from ..study import records
from ..tasks import OPERATORS, WORKLOADS
from ..tasks.arguments import WORKLOAD_HELP, add_shape, duration, named_task, positive
from ..tasks.device import KINDS, find_device, usable_cores
from ..tasks.network.models import is_model, model_name
from .progress import Progress

# What figures 7 and 8 of the OpEvo paper vary, around its q = 0.5 and lambda = 8; the text does not give their other values.
RATES = (0.1, 0.3, 0.5, 0.7, 0.9)
PARENTS = (2, 4, 8, 16, 32)


def add_commands(command):
    """Add the commands to a parser.

    Parameters
    ----------
    command
        Called with a command's name, the function that runs it, its summary and what stands below its help; returns its parser.
    """
    sub = command(
        "replay",
        _replay,
        "Replay searches on recorded landscapes; print a table, write a CSV file and the convergence figure.",
        "examples: tensor-tuners replay landscapes --searches OpEvo AutoTVM:batch_size=16    tensor-tuners replay A100.json.gz",
    )
    sub.add_argument("sources", nargs="+", metavar="LANDSCAPE", help=_LANDSCAPE_HELP)
    _add_searches(sub)
    _add_runs(sub, 200, 20, "runs/replay")
    sub.add_argument(
        "--batch", type=positive, default=1, help="configurations asked for at a time, as by concurrent trials (default: 1)"
    )
    _add_jobs(sub)

    sub = command(
        "compare",
        _compare,
        "Compare searches live on a workload, in turns, by the same measuring code; print a table, write figures.",
        "Every trial is recorded in the output folder as it ends, and the same command goes on where it was interrupted. The "
        "records can be replayed.",
    )
    sub.add_argument("workload", help=f"{WORKLOAD_HELP}; or a model (resnet18, model.onnx), whose tasks they search inside")
    _add_searches(sub)
    _add_runs(sub, 128, 5, "runs/compare-WORKLOAD")
    _add_live(sub)
    sub.add_argument(
        "--transfer",
        nargs="+",
        default=[],
        metavar="EXPERIMENT",
        help="records of other shapes, operators or devices, by folder (collect writes them) or experiment's id; searches that can "
        "learn from these run a second time, with them",
    )

    sub = command(
        "sensitivity",
        _sensitivity,
        "How much OpEvo's mutation rate q and parents size lambda matter (figures 7 and 8 of its paper).",
        "examples: tensor-tuners sensitivity landscapes    tensor-tuners sensitivity mm1 --trials 128 --seeds 5",
    )
    sub.add_argument(
        "sources", nargs="+", metavar="SOURCE", help=f"landscapes to replay: {_LANDSCAPE_HELP}; or, live, {WORKLOAD_HELP}"
    )
    sub.add_argument("--q", type=float, nargs="+", default=RATES, help=f"mutation rates (default: {_listed(RATES)})")
    sub.add_argument(
        "--parents", type=positive, nargs="+", default=PARENTS, help=f"parents sizes (default: {_listed(PARENTS)})"
    )
    _add_runs(sub, "200; live 128", "20; live 5", "runs/sensitivity, live runs/sensitivity-WORKLOAD")
    _add_jobs(sub)
    _add_live(sub)

    sub = command(
        "collect",
        _collect,
        "Measure random configurations of several workloads, and record them with what their programs are like.",
        "WalkGP and AutoTVM with features of programs learn from the records of any operators, shapes and devices (transfer). Every "
        "trial is recorded as it ends, and the same command goes on where it was interrupted.\n\n"
        "example: tensor-tuners collect resnet18-c1 resnet18-c2 --trials 100 --features relation",
    )
    sub.add_argument(
        "workloads",
        nargs="+",
        metavar="WORKLOAD",
        help=WORKLOAD_HELP,
    )
    sub.add_argument("--trials", type=positive, help="configurations of each (default: 100)")
    sub.add_argument(
        "--minutes",
        type=duration,
        help="for all of them; instead of --trials, or with it whichever ends it sooner; the same command goes on",
    )
    sub.add_argument("--seed", type=int, default=0, help="of the draws (default: 0)")
    sub.add_argument(
        "--features",
        nargs="+",
        choices=[*(each for each in SEEN if each != CONFIGURATION), TREE],
        default=["relation"],
        help="kinds that are recorded (default: relation)",
    )
    sub.add_argument("--output", metavar="FOLDER", default="runs/collect", help="where (default: runs/collect)")
    _add_compilers(sub, "1 on a CPU, which searches as well; else the usable cores")
    _add_where(sub)

    sub = command(
        "record",
        _record,
        "Measure all configurations of a workload, or random ones, once each: a landscape that searches can be replayed on.",
        "Every trial is recorded as it ends, and the same command goes on where it was interrupted.\n\n"
        "examples: tensor-tuners record mm1 --all --constraint 'X[1] == 1' --constraint 'K[1] <= 4'\n"
        "          tensor-tuners record resnet18-c12 --random 2000 --compilers 8",
    )
    sub.add_argument("workload", help=WORKLOAD_HELP)
    how_many = sub.add_mutually_exclusive_group(required=True)
    how_many.add_argument("--all", action="store_true", help="every configuration that satisfies the constraints")
    how_many.add_argument("--random", type=positive, metavar="N", help="so many, each as likely as any other")
    _add_compilers(sub, "the usable cores")
    sub.add_argument("--minutes", type=duration, help="stop after so many; the same command goes on")
    sub.add_argument("--seed", type=int, default=0, help="of the draws (default: 0)")
    sub.add_argument("--output", metavar="FOLDER", help="where (default: runs/record-WORKLOAD)")
    _add_where(sub)


_LANDSCAPE_HELP = (
    "a folder with a MANIFEST.json or one of its CSV files, a Kernel Tuner cache (.json, .json.gz), or an experiment's records"
)


def _add_searches(sub):
    usual = [name for name, entry in SEARCHES.items() if not entry.nested]  # the others would repeat what another one does
    sub.add_argument(
        "--searches",
        nargs="+",
        default=usual,
        metavar="SEARCH",
        help=f"NAME or NAME:argument=value:inner.argument=value, the latter of the search inside it (default: {_listed(usual)})",
    )


def _add_runs(sub, trials, seeds, output):
    """The arguments all three share; the last three say their defaults."""
    sub.add_argument("--trials", type=positive, help=f"trials of a run (default: {trials})")
    sub.add_argument("--seeds", type=positive, help=f"runs of each search (default: {seeds})")
    sub.add_argument(
        "--at", type=positive, nargs="+", metavar="TRIAL", help="where the table looks (default: 1/8, 1/4, 1/2, all)"
    )
    sub.add_argument("--output", metavar="FOLDER", help=f"where everything is written (default: {output})")


def _add_jobs(sub):
    sub.add_argument("--jobs", type=positive, help="replays side by side (default: the usable cores)")


def _add_compilers(sub, default):
    sub.add_argument(
        "--compilers",
        type=positive,
        metavar="N",
        help=f"trials at a time; they compile side by side, and are timed one after the other (default: {default})",
    )


def _compilers(args, device):
    """On a CPU as many as disturb no timing: a search that thinks while another one's trial is timed would."""
    return args.compilers or (1 if device.kind == "cpu" else usable_cores())


def _add_live(sub):
    _add_where(sub)
    _add_compilers(sub, "1 on a CPU, which searches as well; else the usable cores; of a run with --nni 4")
    sub.add_argument(
        "--retime",
        type=positive,
        metavar="ROUNDS",
        help="at the end, time what each run had found by then so many times more, in turns, and print the medians: the best of "
        "many timings is a lucky one",
    )
    sub.add_argument("--nni", action="store_true", help="run every search and seed as an NNI experiment, one after the other")
    sub.add_argument(
        "--minutes",
        type=duration,
        help="wall-clock of a run, its own searching and trials; instead of --trials, or with it whichever ends a run sooner",
    )
    sub.add_argument("--baseline", metavar="SEARCH", help="print how far the others are ahead of this one at equal time")


def _add_where(sub):
    add_shape(sub)
    sub.add_argument("--target", choices=["auto", *KINDS], default="auto", help="device to run on (default: auto)")
    sub.add_argument(
        "--constraint",
        action="append",
        default=[],
        metavar="EXPRESSION",
        help="search only configurations that satisfy this too, such as 'X[1] == 1'; may be given again",
    )


def _replay(args):
    from ..arena.summary import parse_search

    searches = {text: parse_search(text) for text in args.searches}
    _replay_and_report(args, searches, {"convergence.png": list(searches)})


def _compare(args):
    from ..arena.summary import parse_search
    from ..frontends.nni.folders import find_folder
    from ..frontends.nni.settings import read_histories
    from ..study import Objective

    searches, histories = {text: parse_search(text) for text in args.searches}, {}
    if args.transfer and args.nni:
        raise ValueError("--transfer: not with --nni")
    if args.transfer:
        learning = {f"{text}, transfer": search for text, search in searches.items() if SEARCHES[search[0]].transfers}
        searches |= learning
        sources = [str(find_folder(source)) for source in args.transfer]
        histories = dict.fromkeys(learning, functools.cache(lambda kind: read_histories(sources, Objective(), kind)))
    _compare_and_report(args, searches, {"trials.png": list(searches)}, histories)


def _sensitivity(args):
    from ..arena.summary import check_search

    base = {"mutate_rate": 0.5, "parents_size": 8}  # in both figures
    searches, figures = {}, {}
    for symbol, argument, values in (("q", "mutate_rate", args.q), ("lambda", "parents_size", args.parents)):
        for value in values:
            label = "q=0.5, lambda=8" if value == base[argument] else f"{symbol}={value:g}"
            searches[label] = ("OpEvo", {**base, argument: value})
            figures.setdefault(f"{argument}.png", []).append(label)
    for label, (_, class_args) in searches.items():
        check_search(label, "OpEvo", class_args)
    args.workload = args.sources[0]
    live = len(args.sources) == 1 and args.workload in (*WORKLOADS, *OPERATORS)
    (_compare_and_report if live else _replay_and_report)(args, searches, figures)


def _collect(args):
    from ..arena.collect import collect

    tasks = {}
    for args.workload in dict.fromkeys(args.workloads):
        task, _, name = named_task(args)
        tasks[name] = task
    output = _output_folder(args.output)
    progress = Progress()
    device = find_device(args.target)
    trials = args.trials or (None if args.minutes else 100)
    what = (tasks, device, args.constraint, args.seed, trials, args.features)
    found = collect(*what, output, progress, _compilers(args, device), args.minutes)
    for name, trials in found.items():
        best = records.best(trials)
        failed = sum(not records.succeeded(record) for record in trials)
        progress.say(f"{name}: {len(trials)} trials, {failed} failed" + (f", best {best['tflops']:.4g} TFLOPS" if best else ""))
    progress.say(f"written to {output}: {records.RECORDS}")


def _record(args):
    from ..arena import figures, landscape
    from ..arena.record import record

    task, _, name = named_task(args)
    device = find_device(args.target)
    output = _output_folder(args.output or f"runs/record-{name}")
    progress, compilers = Progress(), args.compilers or usable_cores()
    what = (task, device, args.constraint)
    path = output / records.RECORDS
    found, complete = record(*what, args.seed, args.random, compilers, path, progress, args.minutes)
    if not found:
        raise ValueError("interrupted before a trial had ended")
    landscape.write(found, *what, complete, name, output)
    progress.say(f"{report.summary(found)}{'; every configuration' if complete else ''}")
    title = f"{len(found)} configurations of {name} on {device.name}"
    figures.plot_ends(found, output / "errors.png", title)
    figures.plot_histogram(found, output / "histogram.png", title)
    progress.say(f"written to {output}: {records.RECORDS}, {name}.csv.gz, {landscape.MANIFEST}, errors.png, histogram.png")


def _replay_and_report(args, searches, figures):
    from ..arena import figures as drawn
    from ..arena.replay import replay_all
    from ..arena.summary import summarise, table, write_csv

    output = _output_folder(args.output or f"runs/{args.command}")
    trials, seeds = args.trials or 200, args.seeds or 20
    progress, start = Progress(), time.monotonic()

    def done(run, ended, total):
        left = (time.monotonic() - start) / ended * (total - ended)
        progress.show(f"{_bar(ended / total)} {ended}/{total} runs, {left:.0f} s left; {run['search']} on {run['where']}")

    counts = _counts(args.at, trials)
    batch = args.batch or 1  # that of sensitivity is of a live workload
    runs, total = replay_all(args.sources, searches, seeds, trials, batch, args.jobs or usable_cores(), done)
    if not runs:
        raise ValueError("interrupted before a run had ended")
    if len(runs) < total:
        progress.say(f"interrupted: {len(runs)} of {total} runs had ended")
    places = list(dict.fromkeys(run["where"] for run in runs))
    if len(places) > 1:
        for where in places:
            rows = summarise([run for run in runs if run["where"] == where], counts)
            progress.say(f"{where}\n{table(rows, counts)}\n")
    what = places[0] if len(places) == 1 else f"mean of {len(places)} landscapes"
    title = f"{what}, {seeds} seeds, {trials} trials"
    progress.say(f"{title}; fraction of the optimum\n{table(summarise(runs, counts), counts)}")
    write_csv(runs, output / "runs.csv")
    for name, labels in figures.items():
        if shown := [run for run in runs if run["search"] in labels]:
            drawn.plot(shown, output / name, title, "best so far / optimum", start=max(1, trials // 20))
    progress.say(f"written to {output}: {_listed(['runs.csv', *figures])}")


def _compare_and_report(args, searches, figures, histories=None):
    from ..arena import clock, compare
    from ..arena import figures as drawn
    from ..arena.summary import summarise, table, write_csv

    if args.nni and args.retime:
        raise ValueError("--retime: not with --nni")
    if args.baseline is not None and args.baseline not in searches:
        raise ValueError(f"--baseline: expected one of {_listed(searches)}, got {args.baseline!r}")
    device, progress = find_device(args.target), Progress()
    task, arguments, name, output, known = _compared(args, device, progress)
    trials, seeds = args.trials or (None if args.minutes else 128), args.seeds or 5
    counts = _counts(args.at, trials) if args.at or trials else None
    what = (task, device, args.constraint, searches, seeds, trials, output)
    if args.nni:
        runs = compare.compare_on_nni(name, arguments, *what, progress, args.minutes, args.compilers)
    else:
        runs = compare.compare(*what, progress, histories, args.minutes, _compilers(args, device), known)
    if not runs:
        raise ValueError("interrupted before a trial had ended")
    runs, unit = [{"where": name, **run} for run in runs], compare.unit_of(task)
    ended = max(len(run["best"]) for run in runs)  # fewer than asked for when interrupted, or when the space is used up
    counts = [count for count in counts or _counts(None, ended) if count < ended] + [ended]
    rows = summarise(runs, counts)
    end = clock.reached(runs) if args.minutes is None else min(60 * args.minutes, clock.reached(runs))
    title = f"{name} on {device.name}, {seeds} seeds, {f'{ended} trials' if trials else f'{args.minutes:g} minutes'}"
    progress.say(f"{title}; best {unit}, mean ± standard deviation over seeds")
    progress.say(table(rows, counts, live=True))
    progress.say(f"\nafter the same time, each run's own; best {unit}, mean ± standard error over seeds")
    progress.say(f"{clock.table(runs, clock.grid(end, 4), args.baseline)}\n\n{clock.shares(runs)}\n")
    write_csv(runs, output / "runs.csv")
    if args.retime:
        found = records.read(output / records.RECORDS)
        again, numpy_tflops = compare.time_again(runs, found, counts, args.retime, progress)
        numpy = f"; NumPy: {numpy_tflops:.4f}" if numpy_tflops else ""
        progress.say(f"the same, timed again in turns, median of {args.retime}{numpy}")
        progress.say(table(summarise(again, range(1, len(counts) + 1)), counts, live=True))
        write_csv(again, output / "retimed.csv", counts)
    for figure, labels in figures.items():
        shown = [run for run in runs if run["search"] in labels]
        drawn.plot(shown, output / figure, title, f"best {unit}")
        drawn.plot_clock(shown, output / f"clock-{figure}", title, f"best {unit}")
        drawn.plot_time(shown, output / f"time-{figure}", title, f"best {unit}", end)
    drawings = [f"{kind}{figure}" for kind in ("", "clock-", "time-") for figure in figures]
    written = ["runs.csv", *["retimed.csv"] * bool(args.retime), *drawings]
    progress.say(f"written to {output}: {_listed(written if args.nni else ['records.jsonl', *written])}")


def _compared(args, device, progress):
    """What is tuned, the arguments of a trial and the name of its experiments, the output folder, and records known before."""
    task, arguments, model = None, "", is_model(args.workload)
    if model:
        for option in ("nni", "retime", "transfer"):
            if getattr(args, option):
                raise ValueError(f"--{option}: not for a model")
        name = model_name(args.workload)
    else:
        task, arguments, name = named_task(args)
    output = _output_folder(args.output or f"runs/{args.command}-{name}")
    if not model:
        return task, arguments, name, output, ()
    from ..networks.earlier import first_records
    from ..networks.prepare import prepare

    network = prepare(args.workload, output, device, progress)
    return network, arguments, name, output, first_records(network, device)


def _counts(at, trials):
    """Where a table looks at the runs: as told, or after an eighth, a quarter, half and all of the trials."""
    if at and trials and max(at) > trials:
        raise ValueError(f"--at: expected at most the {trials} trials of a run, got {max(at)}")
    return sorted(set(at or (max(1, trials // part) for part in (8, 4, 2, 1))))


def _bar(fraction, width=20):
    return f"[{'#' * round(fraction * width):.<{width}}]"


def _listed(things):
    return ", ".join(map(str, things))


def _output_folder(path):
    path = Path(path)
    path.mkdir(parents=True, exist_ok=True)
    return path
