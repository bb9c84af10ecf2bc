"""What WalkGP gains from another device's records, and what records that mislead cost it.

usage: transfer.py FOLDER [SEEDS [SOURCE_TRIALS]]      the folder of recorded landscapes; default 20 seeds, 100 trials there

A source is what WalkGP with the same seed measured there. A misleading one has its order reversed. Printed: the
fraction of the optimum after 10, 20, 40, 100 trials; and when a run with transfer reaches, in the mean over the seeds, what 100
trials reach without; for the misleading one, how many trials later it is than without at what those reach in 50.
"""

import sys
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


def main():
    folder = sys.argv[1]
    seeds, trials_there = [*map(int, sys.argv[2:]), *(20, 100)[len(sys.argv) - 2 :]]
    with ProcessPoolExecutor() as pool:
        for source, target in PAIRS:
            jobs = [pool.submit(run, folder, source, target, seed, trials_there) for seed in range(seeds)]
            curves = np.array([job.result() for job in jobs]).mean(axis=0)
            print(f"{source} -> {target}, {seeds} seeds, {trials_there} trials there")
            for label, curve in zip(("from scratch", "transfer", "misled"), curves):
                print(f"  {label:<14}" + "".join(f"{curve[trial - 1]:8.3f}" for trial in (10, 20, 40, 100)))
            scratch, transfer, misled = curves
            print(
                f"  {scratch[-1]:.3f}, which 100 trials reach from scratch: trial {reaches(transfer, scratch[-1])} with transfer"
            )
            delay = reaches(misled, scratch[49]) - reaches(scratch, scratch[49])
            print(f"  {scratch[49]:.3f}, which 50 trials reach from scratch: {delay:+d} trials when misled", flush=True)


if __name__ == "__main__":
    main()
