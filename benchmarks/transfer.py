"""What WalkGP gains from another device's records, and what records that mislead cost it.

For every ordered pair of recordings of one kernel: a source is what WalkGP with the same seed measured there, or all that is
recorded there; a reversed one has its order turned round. Printed: the fraction of the optimum with the source, and how far
that is ahead of from scratch, with the standard error of the paired seeds; the means over the pairs, with reversed sources,
too; and at how many pairs and trials it is behind by more than noise (one-sided paired t-test, Holm's correction for all of
them, 5 %).
"""

import argparse
import functools
import itertools
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
from scipy.stats import ttest_rel

from nni_tensor_tuners.arena.landscape import load
from nni_tensor_tuners.search import create_search
from nni_tensor_tuners.study import Study

KERNELS = [
    [f"gemm4096__{device}" for device in ("K20", "P100", "RTX_2070_SUPER", "RTX_3090", "V100")],
    [f"convolution_milo__{device}" for device in ("A4000", "MI250X", "W6600")],
]
SHOWN = (5, 10, 20, 40, 50, 60, 100)
COMPARED = (20, 40, 60, 100)
LEVEL = 0.05
SCRATCH, SOURCE, REVERSED = LABELS = ("from scratch", "transfer", "reversed")

recordings = functools.cache(load)  # each process reads a file once


def search(folder, name, seed, trials, history=(), reversed_order=False):
    """(configuration, fraction of the optimum or None) of each trial of WalkGP, which is given ``history`` of elsewhere."""
    (recording,) = recordings(Path(folder) / f"{name}.csv.gz")
    walkgp = create_search("WalkGP", recording.space, seed=seed)
    if history:
        walkgp.transfer([[(config, fraction and 1 / fraction) for config, fraction in history] if reversed_order else history])
    trials = Study(walkgp).run(lambda config: (recording.fitness[recording.space.point(config)], None), trials)
    return [(trial.config, trial.fitness and trial.fitness / recording.optimum) for trial in trials]


@functools.cache
def whole(folder, name):
    """What `search` returns, of every configuration of a recording."""
    (recording,) = recordings(Path(folder) / f"{name}.csv.gz")
    space, optimum = recording.space, recording.optimum
    return [(space.config(point), fitness and fitness / optimum) for point, fitness in recording.fitness.items()]


def curves(folder, seeds, trials, trials_there, pairs):
    """(source, target, label -> best so far, of shape (seeds, trials)) of each pair, as they are done."""
    with ProcessPoolExecutor() as pool:
        names = dict.fromkeys(itertools.chain(*pairs) if trials_there else (target for _, target in pairs))
        needed = max(trials, trials_there or 0)
        scratch = {(name, seed): pool.submit(search, folder, name, seed, needed) for name in names for seed in seeds}
        jobs = {}
        for (source, target), seed in itertools.product(pairs, seeds):
            history = scratch[source, seed].result()[:trials_there] if trials_there else whole(folder, source)
            jobs[source, target, SCRATCH, seed] = scratch[target, seed]
            for label in (SOURCE, REVERSED):
                given = (folder, target, seed, trials, history, label == REVERSED)
                jobs[source, target, label, seed] = pool.submit(search, *given)
        for source, target in pairs:
            runs = {label: [jobs[source, target, label, seed].result() for seed in seeds] for label in LABELS}
            yield source, target, {label: np.array([best_so_far(run[:trials]) for run in each]) for label, each in runs.items()}


def best_so_far(measured):
    """The fraction of the optimum reached after each trial."""
    return np.maximum.accumulate([fraction or 0.0 for _, fraction in measured])


def holm(p):
    """p-values adjusted for their number (Holm 1979): with those below LEVEL rejected, LEVEL is the error of them together."""
    order = np.argsort(p)
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(1, np.maximum.accumulate(np.sort(p) * np.arange(len(p), 0, -1)))
    return adjusted


def show(found, trials):
    """A line for each pair, what is behind by more than noise, and the means over the pairs."""
    shown, compared = ([trial for trial in at if trial <= trials] for at in (SHOWN, COMPARED))
    columns = "".join(f"{trial:6d}" for trial in shown)
    print(f"{'fraction of the optimum after':<44}{columns}    ahead of from scratch after", end="")
    print("".join(f"{trial:>{5 if i == 0 else 15}d}" for i, trial in enumerate(compared)))
    means, tests = {label: [] for label in LABELS}, {}
    for source, target, runs in found:
        pair = f"{source} -> {target.partition('__')[2]}"
        for label in LABELS:
            means[label].append(runs[label].mean(axis=0))
        print(f"{pair:<44}" + "".join(f"{means[SOURCE][-1][trial - 1]:6.3f}" for trial in shown) + " " * 17, end="")
        for trial in compared:
            ahead = runs[SOURCE][:, trial - 1] - runs[SCRATCH][:, trial - 1]
            print(f" {ahead.mean():+.3f}+-{ahead.std(ddof=1) / len(ahead) ** 0.5:.3f}", end="")
            behind = ttest_rel(*(runs[label][:, trial - 1] for label in (SOURCE, SCRATCH)), alternative="less").pvalue
            tests[pair, trial] = 1.0 if np.isnan(behind) else behind  # no difference with any seed
        print(flush=True)
    for label, each in means.items():
        print(f"{'mean of the pairs, ' + label:<44}" + "".join(f"{np.mean(each, axis=0)[trial - 1]:6.3f}" for trial in shown))
    adjusted = dict(zip(tests, holm(np.array(list(tests.values())))))
    least = min(adjusted, key=adjusted.get)
    print(f"behind from scratch by more than noise: {sum(p < LEVEL for p in adjusted.values())} of {len(adjusted)}; ", end="")
    print(f"the least adjusted p is {adjusted[least]:.2g}, {least[0]} after {least[1]}")


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
    text = "of the source, or all: its whole recording (default: %(default)s)"
    parser.add_argument("trials_there", nargs="?", type=trials_or_all, default=100, help=text)
    parser.add_argument("--trials", type=int, default=100, help="here (default: %(default)s)")
    parser.add_argument("--pairs", nargs="+", metavar="SOURCE:TARGET", help="only these, like gemm4096__V100:gemm4096__K20")
    parser.add_argument("--first-seed", type=int, default=0, help="seeds from this one on (default: %(default)s)")
    args = parser.parse_args()
    if args.seeds < 2:
        parser.error(f"seeds: expected at least 2, which a standard error takes, got {args.seeds}")
    if args.trials < min(COMPARED):
        parser.error(f"--trials: expected at least {min(COMPARED)}, got {args.trials}")
    every = [pair for kernel in KERNELS for pair in itertools.permutations(kernel, 2)]
    asked = [tuple(pair.split(":")) for pair in args.pairs or []]
    for pair in asked:
        if pair not in every:
            parser.error(f"--pairs: expected two recordings of one kernel, like {':'.join(every[0])}, got {':'.join(pair)}")
    seeds = range(args.first_seed, args.first_seed + args.seeds)
    show(curves(args.folder, seeds, args.trials, args.trials_there, asked or every), args.trials)


if __name__ == "__main__":
    main()
