"""AutoTVM's components and its transfer, as figures 4 to 9 of its paper, on the device there is.

usage: autotvm.py components [--workload resnet18-c6] [--space template] [--trials 200] [--seeds 3] [--output runs/autotvm]
       autotvm.py transfer   [--targets resnet18-c7 resnet18-c8 resnet18-c9 matmul-1024] [--sources resnet18-c1 ... resnet18-c6]
                             [--searches S x R WalkGP] [--space template] [--collect 100] [--trials 100] [--seeds 3]
                            [--history WalkGP] [--retime 5] [--output runs/autotvm]

components: figures 4 to 7, all searches in turns; "x 2" has twice the trials. The paper has 800 trials. The TreeGRU is there
where PyTorch is installed (`pip install .[treegru]`).
transfer: figures 8 and 9. Random configurations of the sources are measured; for each target the searches run in turns, with
features of the configuration (S), of the loops (x) and of their relations (R), from scratch and with the sources' records; and
WalkGP with R.
`--history SEARCH`: of the sources the trials of a search, from scratch, instead of random configurations.
`--sources resnet18-c7 --targets resnet18-c7` is figure 9a, in domain.
`--space sketches`: TVM's sketches of the same operators instead of our templates, without the schedule that a study begins with.
`--space program`: likewise, but our template of the product is one of its sketches, as where a user tunes a program. Of it no source
has anything, since the template for convolutions is no sketch of theirs.
Printed, and drawn in the output folder: TFLOPS of the best so far; and after how many trials the mean has so much of what the
same search from scratch has at the end. `--retime ROUNDS`: also what each search had found by then, timed again in turns, medians:
the best of many timings is a lucky one.

Every trial is recorded as it ends, and the same command goes on where it was interrupted.
"""

import argparse
import functools
from importlib.util import find_spec
from pathlib import Path

from nni_tensor_tuners.arena import figures
from nni_tensor_tuners.arena.collect import collect
from nni_tensor_tuners.arena.compare import compare, time_again
from nni_tensor_tuners.arena.summary import summarise, table
from nni_tensor_tuners.cli.progress import Progress
from nni_tensor_tuners.frontends.nni.settings import read_histories
from nni_tensor_tuners.search import SEARCHES
from nni_tensor_tuners.search.base import CONFIGURATION
from nni_tensor_tuners.study import Objective, records
from nni_tensor_tuners.tasks import get_task
from nni_tensor_tuners.tasks.device import find_device
from nni_tensor_tuners.tasks.matmul import Matmul
from nni_tensor_tuners.tasks.program import Program

BATCH = 16  # 64 in the paper, which has four times the trials
R = {"features": "relation", "batch_size": BATCH}
COMPONENTS = {
    "GBT, rank": R,
    "GBT, regression": {**R, "objective": "regression"},
    "lambda 1": {**R, "candidates": 1},
    "lambda 4": {**R, "candidates": 4},
    "EI": {**R, "acquisition": "ei"},
    "UCB": {**R, "acquisition": "ucb"},
}
if find_spec("torch"):
    COMPONENTS["TreeGRU, rank"] = {"model": "treegru", "batch_size": BATCH}
    COMPONENTS["TreeGRU, regression"] = {**COMPONENTS["TreeGRU, rank"], "objective": "regression"}
MATMUL = "matmul-1024"
SHARES = (0.9, 0.95, 0.98, 0.99, 1)
TRANSFERRING = {
    **{
        symbol: ("AutoTVM", {**R, "features": kind})
        for symbol, kind in (("S", CONFIGURATION), ("x", "loop"), ("R", "relation"))
    },
    "WalkGP": ("WalkGP", {"features": "relation"}),
}


class FromNothing(Program):
    """A program that is searched without a first schedule."""

    def first(self, device):
        return []


class Sketched(FromNothing):
    """And in TVM's sketches alone."""

    def sketches(self, device):
        return [sketch for sketch in super().sketches(device) if "task" not in sketch]


def components(args, device, progress):
    task = task_named(args.workload, args.space)
    model = {label: ("AutoTVM", class_args) for label, class_args in COMPONENTS.items()}
    plain = {"Genetic": ("Genetic", {}), "Random": ("Random", {})}
    runs = []
    for name, searches, trials in (("model", model, args.trials), ("plain", plain, 2 * args.trials)):
        folder = made(args.output / f"components-{args.workload}-{args.space}-{name}")
        runs += compare(task, device, [], searches, args.seeds, trials, folder, progress)
    twice = [{**run, "search": f"{run['search']} x 2", "best": run["best"][1::2]} for run in runs if run["search"] in plain]
    drawing = args.output / f"components-{args.workload}-{args.space}.png"
    shown(f"{args.workload}, {args.seeds} seeds", [*runs, *twice], args.trials, drawing, progress)


def transfer(args, device, progress):
    kinds = sorted({class_args["features"] for _, class_args in TRANSFERRING.values()} - {CONFIGURATION})
    sources = {name: task_named(name, args.space) for name in args.sources}
    if args.history is None:
        collected = [made(args.output / f"sources-{args.space}")]
        collect(sources, device, [], 0, args.collect, kinds, collected[0], progress)
    else:
        collected = [made(args.output / f"sources-{args.space}-{args.history}-{name}") for name in sources]
        for source, folder in zip(sources.values(), collected):
            compare(source, device, [], {args.history: (args.history, {})}, 1, args.collect, folder, progress)
    histories = functools.cache(lambda kind: read_histories(map(str, collected), Objective(), kind))
    for target in args.targets:
        searches, known = {}, {}
        for symbol in args.searches:
            searches[symbol] = TRANSFERRING[symbol]
            # Sketches of convolutions have different parameters: those of a kernel of one element lack its loops.
            if symbol != "S" or (target != MATMUL and args.space == "template"):
                searches[f"{symbol}, transfer"] = searches[symbol]
                known[f"{symbol}, transfer"] = histories
        folder = made(args.output / "-".join(filter(None, ["transfer", target, args.space, args.history])))
        runs = compare(task_named(target, args.space), device, [], searches, args.seeds, args.trials, folder, progress, known)
        rows = shown(f"{target}, {args.seeds} seeds", runs, args.trials, folder.with_suffix(".png"), progress)
        if args.retime:
            counts = shown_at(args.trials)
            again, _ = time_again(runs, records.read(folder / records.RECORDS), counts, args.retime, progress)
            progress.say(f"the same, timed again in turns, median of {args.retime}")
            progress.say(table(summarise(again, range(1, len(counts) + 1)), counts, live=True))
        means = {row["search"]: row["best"] for row in summarise(runs, range(1, args.trials + 1))}
        percents = " ".join(f"{share:>4.0%}" for share in SHARES)
        progress.say(f"trials until it has {percents} of what the same search from scratch has after {args.trials}")
        for label in rows:
            most = means[label.removesuffix(", transfer")][-1]
            reached = (next((n for n, best in enumerate(means[label], 1) if best >= share * most), "-") for share in SHARES)
            progress.say(f"{label:<19} " + " ".join(f"{trial:>4}" for trial in reached))


def shown(title, runs, trials, drawing, progress):
    """Prints a table and draws the curves; returns the labels."""
    counts = shown_at(trials)
    rows = summarise(runs, counts)
    progress.say(f"\n{title}; best TFLOPS, mean ± standard deviation over seeds\n{table(rows, counts, live=True)}")
    figures.plot([{**run, "best": run["best"][:trials]} for run in runs], drawing, title, "best TFLOPS")
    return [row["search"] for row in rows]


def shown_at(trials):
    """The numbers of trials that tables have."""
    return sorted({max(1, trials * part // 20) for part in (1, 2, 4, 8, 12, 20)})


def task_named(name, space):
    task = Matmul(1024, 1024, 1024) if name == MATMUL else get_task(name)
    if space == "template":
        return task
    program = {"sketches": Sketched, "program": FromNothing}[space]
    if name == MATMUL:
        return program("matmul(n=1024, k=1024, m=1024)")
    (height, width), (kernel, _) = task.image, task.kernel
    return program(
        f"c2d(height={height}, width={width}, in_channels={task.in_channels}, out_channels={task.out_channels}, kernel={kernel}, "
        f"stride={task.stride[0]}, padding={task.padding[0]})"
    )


def made(folder):
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["components", "transfer"])
    parser.add_argument("--workload", default="resnet18-c6")
    parser.add_argument("--targets", nargs="+", default=["resnet18-c7", "resnet18-c8", "resnet18-c9", MATMUL])
    parser.add_argument("--sources", nargs="+", default=[f"resnet18-c{i}" for i in range(1, 7)])
    parser.add_argument("--searches", nargs="+", choices=TRANSFERRING, default=list(TRANSFERRING))
    parser.add_argument("--space", choices=["template", "sketches", "program"], default="template")
    parser.add_argument("--collect", type=int, default=100)
    parser.add_argument("--history", choices=SEARCHES)
    parser.add_argument("--trials", type=int)
    parser.add_argument("--retime", type=int, metavar="ROUNDS")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--target", default="auto")
    parser.add_argument("--output", type=Path, default=Path("runs/autotvm"))
    args = parser.parse_args()
    args.trials = args.trials or {"components": 200, "transfer": 100}[args.what]
    {"components": components, "transfer": transfer}[args.what](args, find_device(args.target), Progress())


if __name__ == "__main__":
    main()
