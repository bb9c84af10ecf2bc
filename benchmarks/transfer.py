"""What WalkGP gains from another device's records, and what records that mislead cost it.

A source is what WalkGP with the same seed measured there. A misleading one has its order reversed. Printed: the
fraction of the optimum after 10, 20, 40, 100 trials; and when a run with transfer reaches, in the mean over the seeds, what 100
trials reach without; for the misleading one, how many trials later it is than without at what those reach in 50. With --all every
ordered pair of recordings of one kernel, and after 60 trials by how much it is ahead of from scratch.
"""

import argparse
import itertools
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

from nni_tensor_tuners.landscape import load
from nni_tensor_tuners.replay import replay
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


def source_trials(recording, seed, trials):
    """(configuration, fitness) of a search on the source."""
    search = create_search("WalkGP", recording.space, seed=seed)
    history = []
    for _ in range(trials):
        (config,) = search.ask(1)
        history.append((config, recording.fitness[recording.space.point(config)]))
        search.tell(*history[-1])
    return history


def run(folder, source, target, seed, trials_there):
    """Best-so-far curves from scratch, with transfer, and misled."""
    there, here = (load(Path(folder) / f"{name}.csv.gz")[0] for name in (source, target))
    history = source_trials(there, seed, trials_there)
    reversed_history = [(config, fitness and 1 / fitness) for config, fitness in history]
    return [replay(here, "WalkGP", {}, seed, TRIALS, histories=h)["best"] for h in ([], [history], [reversed_history])]


def reaches(curve, level):
    """The first trial with at least this level; 101 when none has."""
    return next((trial for trial, best in enumerate(curve, 1) if best >= level), TRIALS + 1)


def best_so_far(folder, seeds, trials_there, pairs):
    """For each pair the curves from scratch, with transfer and misled: (source, target, array of shape (seeds, 3, TRIALS))."""
    with ProcessPoolExecutor() as pool:
        jobs = {pair: [pool.submit(run, folder, *pair, seed, trials_there) for seed in range(seeds)] for pair in pairs}
        for pair, runs in jobs.items():
            yield *pair, np.array([job.result() for job in runs])


def show_pairs(found):
    """A line for each pair, and the means."""
    shown = (5, 10, 20, 30, 40, 60)
    print(f"{'':<44}{'after':<13}" + "".join(f"{trial:7d}" for trial in shown) + "   ahead of from scratch after 60")
    total = []
    for source, target, curves in found:
        total.append(curves.mean(axis=0))
        ahead = curves[:, 1, 59] - curves[:, 0, 59]
        error = ahead.std(ddof=1) / len(ahead) ** 0.5
        name = f"{source} -> {target.partition('__')[2]}"
        print(
            f"{name:<44}{'transfer':<13}"
            + "".join(f"{total[-1][1][trial - 1]:7.3f}" for trial in shown)
            + f"   {ahead.mean():+.3f}, standard error {error:.3f}",
            flush=True,
        )
    for i, label in enumerate(("from scratch", "transfer", "misled")):
        print(
            f"{'all':<44}{label:<13}"
            + "".join(f"{np.mean([curves[i][trial - 1] for curves in total]):7.3f}" for trial in shown)
        )


def show_levels(found, trials_there):
    """When transfer reaches what is reached from scratch."""
    for source, target, runs in found:
        scratch, transfer, misled = curves = runs.mean(axis=0)
        print(f"{source} -> {target}, {len(runs)} seeds, {trials_there} trials there")
        for label, curve in zip(("from scratch", "transfer", "misled"), curves):
            print(f"  {label:<14}" + "".join(f"{curve[trial - 1]:8.3f}" for trial in (10, 20, 40, 100)))
        print(f"  {scratch[-1]:.3f}, which 100 trials reach from scratch: trial {reaches(transfer, scratch[-1])} with transfer")
        delay = reaches(misled, scratch[49]) - reaches(scratch, scratch[49])
        print(f"  {scratch[49]:.3f}, which 50 trials reach from scratch: {delay:+d} trials when misled", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", help="of the recorded landscapes")
    parser.add_argument("seeds", nargs="?", type=int, default=20)
    parser.add_argument("trials_there", nargs="?", type=int, default=100, help="of the source (default: %(default)s)")
    parser.add_argument("--all", action="store_true", help="every ordered pair of recordings of one kernel, in a line each")
    args = parser.parse_args()
    pairs = [pair for kernel in KERNELS for pair in itertools.permutations(kernel, 2)] if args.all else PAIRS
    found = best_so_far(args.folder, args.seeds, args.trials_there, pairs)
    if args.all:
        show_pairs(found)
    else:
        show_levels(found, args.trials_there)


if __name__ == "__main__":
    main()
