"""What WalkGP gains from another device's records, and what records that mislead cost it.

A source is what WalkGP with the same seed measured there, or all that is recorded there. A misleading one has its order reversed.
Printed: the fraction of the optimum after 10, 20, 40, 100 trials; and when a run with transfer reaches, in the mean over the seeds,
what 100 trials reach without; for the misleading one, how many trials later it is than without at what those reach in 50. With
--all, for every ordered pair of recordings of one kernel, by how much transfer is ahead of from scratch.
"""

import argparse
import functools
import itertools
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

from nni_tensor_tuners.landscape import load
from nni_tensor_tuners.search import create_search

PAIRS = [
    ("gemm4096__V100", "gemm4096__P100"),
    ("gemm4096__RTX_2070_SUPER", "gemm4096__RTX_3090"),
    ("convolution_milo__A4000", "convolution_milo__W6600"),
]
KERNELS = [
    [f"gemm4096__{device}" for device in ("K20", "P100", "RTX_2070_SUPER", "RTX_3090", "V100")],
    [f"convolution_milo__{device}" for device in ("A4000", "MI250X", "W6600")],
]
TRIALS = 100
SHOWN = (5, 10, 20, 30, 40, 60, 100)
COMPARED = (20, 40, 60, 100)

recordings = functools.cache(load)  # each process reads a file once


def search(folder, name, seed, trials, history=(), misleading=False):
    """(configuration, fraction of the optimum or None) of each trial of WalkGP, which is given ``history`` of elsewhere."""
    (recording,) = recordings(Path(folder) / f"{name}.csv.gz")
    walkgp = create_search("WalkGP", recording.space, seed=seed)
    if history:
        walkgp.transfer([[(config, fraction and 1 / fraction) for config, fraction in history] if misleading else history])
    measured = []
    for _ in range(trials):
        (config,) = walkgp.ask(1)
        fitness = recording.fitness[recording.space.point(config)]
        walkgp.tell(config, fitness)
        measured.append((config, fitness and fitness / recording.optimum))
    return measured


@functools.cache
def whole(folder, name):
    """What `search` returns, of every configuration of a recording."""
    (recording,) = recordings(Path(folder) / f"{name}.csv.gz")
    space, optimum = recording.space, recording.optimum
    return [(space.config(point), fitness and fitness / optimum) for point, fitness in recording.fitness.items()]


def best_so_far(measured):
    """The curve of a search's first TRIALS trials."""
    return np.maximum.accumulate([fraction or 0.0 for _, fraction in measured[:TRIALS]])


def reaches(curve, level):
    """The first trial with at least this level; 101 when none has."""
    return next((trial for trial, best in enumerate(curve, 1) if best >= level), TRIALS + 1)


def curves(folder, seeds, trials_there, pairs, labels):
    """For each pair, label -> best so far, of shape (seeds, TRIALS): (source, target, that) as they are done."""
    with ProcessPoolExecutor() as pool:
        names = dict.fromkeys(name for pair in pairs for name in (pair if trials_there else pair[1:]))
        runs = list(itertools.product(names, seeds))
        scratch = {run: pool.submit(search, folder, *run, max(TRIALS, trials_there or 0)) for run in runs}
        jobs = {}
        for source, target in pairs:
            for seed in seeds:
                history = scratch[source, seed].result()[:trials_there] if trials_there else whole(folder, source)
                for label in labels:
                    given = (folder, target, seed, TRIALS, history, label == "misled")
                    jobs[source, target, label, seed] = pool.submit(search, *given)
        for source, target in pairs:
            runs_of = {"from scratch": [scratch[target, seed] for seed in seeds]}
            runs_of |= {label: [jobs[source, target, label, seed] for seed in seeds] for label in labels}
            yield source, target, {k: np.array([best_so_far(job.result()) for job in v]) for k, v in runs_of.items()}


def show_pairs(found):
    """A line for each pair: the means with transfer, and the differences with the standard errors of the paired seeds."""
    columns = "".join(f"{trial:6d}" for trial in SHOWN)
    print(f"{'fraction of the optimum after':<44}{columns}{'ahead of from scratch after':>30}", end="")
    print("".join(f"{trial:14d}" for trial in COMPARED)[7:])
    total = {"from scratch": [], "transfer": []}
    for source, target, runs in found:
        for label in total:
            total[label].append(runs[label].mean(axis=0))
        name = f"{source} -> {target.partition('__')[2]}"
        print(f"{name:<44}" + "".join(f"{total['transfer'][-1][trial - 1]:6.3f}" for trial in SHOWN) + " " * 23, end="")
        for trial in COMPARED:
            ahead = runs["transfer"][:, trial - 1] - runs["from scratch"][:, trial - 1]
            print(f" {ahead.mean():+.3f}+-{ahead.std(ddof=1) / len(ahead) ** 0.5:.3f}", end="")
        print(flush=True)
    for label, means in total.items():
        print(f"{'all, ' + label:<44}" + "".join(f"{np.mean(means, axis=0)[trial - 1]:6.3f}" for trial in SHOWN))


def show_levels(found, trials_there):
    """When transfer reaches what is reached from scratch."""
    for source, target, runs in found:
        print(f"{source} -> {target}, {len(runs['transfer'])} seeds, {trials_there or 'all'} trials there")
        mean = {label: best.mean(axis=0) for label, best in runs.items()}
        for label, curve in mean.items():
            print(f"  {label:<14}" + "".join(f"{curve[trial - 1]:8.3f}" for trial in (10, 20, 40, 100)))
        last, half = mean["from scratch"][-1], mean["from scratch"][49]
        print(f"  {last:.3f}, which 100 trials reach from scratch: trial {reaches(mean['transfer'], last)} with transfer")
        delay = reaches(mean["misled"], half) - reaches(mean["from scratch"], half)
        print(f"  {half:.3f}, which 50 trials reach from scratch: {delay:+d} trials when misled", flush=True)


def trials_or_all(text):
    """The number of trials of a source that is given on the command line; None for all."""
    if text == "all":
        return None
    if not text.isdecimal() or int(text) < 2:
        raise argparse.ArgumentTypeError(f"expected a number of at least 2, or all, got {text}")
    return int(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", help="of the recorded landscapes")
    parser.add_argument("seeds", nargs="?", type=int, default=20)
    parser.add_argument(
        "trials_there",
        nargs="?",
        type=trials_or_all,
        default=100,
        help="of the source, or all: its whole recording (default: %(default)s)",
    )
    lines = parser.add_mutually_exclusive_group()
    lines.add_argument("--all", action="store_true", help="every ordered pair of recordings of one kernel, in a line each")
    lines.add_argument(
        "--pairs", nargs="+", metavar="SOURCE:TARGET", help="these pairs, like gemm4096__V100:gemm4096__K20, likewise"
    )
    parser.add_argument("--first-seed", type=int, default=0, help="seeds from this one on (default: %(default)s)")
    args = parser.parse_args()
    if args.seeds < 2:
        parser.error(f"seeds: expected at least 2, which a standard error takes, got {args.seeds}")
    every = [pair for kernel in KERNELS for pair in itertools.permutations(kernel, 2)]
    asked = [tuple(pair.split(":")) for pair in args.pairs or []]
    for pair in asked:
        if pair not in every:
            parser.error(f"--pairs: expected two recordings of one kernel, like {':'.join(every[0])}, got {':'.join(pair)}")
    seeds = range(args.first_seed, args.first_seed + args.seeds)
    if args.all or asked:
        show_pairs(curves(args.folder, seeds, args.trials_there, asked or every, ["transfer"]))
    else:
        show_levels(curves(args.folder, seeds, args.trials_there, PAIRS, ["transfer", "misled"]), args.trials_there)


if __name__ == "__main__":
    main()
