"""What each part of WalkGP is worth: WalkGP with one part at a time replaced or left out, replayed.

Printed besides what `tensor-tuners replay` prints: how far each is ahead of WalkGP, in the mean of the landscapes, with the
standard error of the paired seeds.
"""

import argparse
import csv
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np

from nni_tensor_tuners.cli import main
from nni_tensor_tuners.search import SEARCHES, WalkGP
from nni_tensor_tuners.search.cost_model import one_thread
from nni_tensor_tuners.search.registry import Entry
from nni_tensor_tuners.search.walkgp.process import GaussianProcess

ARGUMENTS = ["kernel=walk", "kernel=rbf", "kernel=hamming", "divisibility=false", "failure_weight=0", "offspring=0"]
INITIAL = 4  # WalkGP's default
# As in SMAC (Hutter, Hoos and Leyton-Brown 2011): few trees, 5/6 of the parameters at every split, leaves of 3 at least.
FOREST = {
    "num_parallel_tree": 30,
    "subsample": 0.8,
    "colsample_bynode": 5 / 6,
    "min_child_weight": 3,
    "max_depth": 20,
    "eta": 1,
    "lambda": 0,
    "nthread": 1,
}


class RandomStart(WalkGP):
    """The first trials are random."""

    def _most_telling(self):
        return None


class RandomForest(WalkGP):
    """The model of performance is a random forest, over the levels of the same axes."""

    def __init__(self, space, seed=0):
        super().__init__(space, seed)
        self._performance = _Forest(self._kernel)


class _Forest:
    """What WalkGP asks of its process; the first trials are chosen by a process."""

    def __init__(self, kernel):
        self._process = GaussianProcess(kernel)
        self._level = np.zeros((kernel.width, len(kernel.axes)), dtype=np.float32)
        for axis, block in enumerate(kernel.blocks):
            self._level[block, axis] = np.arange(block.stop - block.start)

    def posterior(self, rows, scores, running):
        if len(rows) < INITIAL:
            return self._process.posterior(rows, scores, running)
        return _Leaves(rows @ self._level, scores, self._level)


class _Leaves:
    """A posterior: that of a random forest."""

    def __init__(self, levels, scores, level):
        import xgboost

        self._level = level
        with one_thread():
            self._forest = xgboost.train({**FOREST, "seed": len(scores)}, xgboost.DMatrix(levels, scores), 1)
        leaves = self._leaves(levels)
        count = np.apply_along_axis(np.bincount, 0, leaves, minlength=leaves.max() + 1)
        total, squares = (
            np.array([np.bincount(leaf, weights=values, minlength=len(count)) for leaf in leaves.T]).T
            for values in (scores, scores**2)
        )
        self._mean = total / np.maximum(count, 1)  # by leaf and tree
        self._variance = np.maximum(squares / np.maximum(count, 1) - self._mean**2, 0)
        self.highest = self._predict(levels)[0].max()

    def predict(self, rows):
        return self._predict(rows @ self._level)

    def _predict(self, levels):
        """The mean over the trees, and the deviation of a mixture of their leaves."""
        leaves = self._leaves(levels)
        trees = np.arange(leaves.shape[1])
        means = self._mean[leaves, trees]
        variance = means.var(axis=1) + self._variance[leaves, trees].mean(axis=1)
        return means.mean(axis=1), np.sqrt(np.maximum(variance, 1e-6))

    def _leaves(self, levels):
        """Which leaf of each tree, of shape (m, trees)."""
        import xgboost

        with one_thread():
            leaves = self._forest.predict(xgboost.DMatrix(levels), pred_leaf=True)
        return leaves.reshape(len(levels), -1).astype(int)


CLASSES = [RandomStart, RandomForest]


def show_differences(path, trials):
    """Of the runs in a runs.csv, after so many trials."""
    best = defaultdict(dict)  # search -> (landscape, seed) -> best after each of the trials
    with open(path, newline="", encoding="utf-8") as file:
        for run in csv.DictReader(file):
            curve = [float(value) for name, value in run.items() if name.startswith("best_") and value]
            best[run["search"]][run["where"], run["seed"]] = [curve[min(trial, len(curve)) - 1] for trial in trials]
    print(f"\n{'ahead of WalkGP after':<26}" + "".join(f"{trial:17d}" for trial in trials))
    for search, runs in best.items():
        ahead = defaultdict(list)
        for (where, seed), values in runs.items():
            if (where, seed) in best["WalkGP"]:
                ahead[where].append(np.subtract(values, best["WalkGP"][where, seed]))
        mean = np.mean([np.mean(each, axis=0) for each in ahead.values()], axis=0)
        squares = [np.var(each, axis=0, ddof=1) / len(each) for each in ahead.values()]
        error = np.sqrt(np.sum(squares, axis=0)) / len(ahead)
        print(f"{search:<26}" + "".join(f"  {m:+.4f}+-{e:.4f}" for m, e in zip(mean, error)))


def run():
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], epilog="Other options are those of `tensor-tuners replay`."
    )
    parser.add_argument("landscapes", nargs="+", metavar="LANDSCAPE")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--at", type=int, nargs="+", default=[25, 50, 100, 200], help="so many trials (default: %(default)s)")
    parts = [*ARGUMENTS, *(each.__name__ for each in CLASSES)]
    parser.add_argument("--parts", nargs="+", choices=parts, default=parts, metavar="PART", help=f"of {', '.join(parts)}")
    parser.add_argument("--output", default="runs/ablation", help="a folder (default: %(default)s)")
    args, others = parser.parse_known_args()
    if args.seeds < 2:
        parser.error(f"seeds: expected at least 2, which a standard error takes, got {args.seeds}")
    SEARCHES.update({each.__name__: Entry(each.__name__, __name__, each.__doc__) for each in CLASSES})
    searches = ["WalkGP", *(f"WalkGP:{part}" if part in ARGUMENTS else part for part in args.parts)]
    options = ["--seeds", str(args.seeds), "--output", args.output, "--at", *map(str, args.at), *others]
    status = main(["replay", *args.landscapes, "--searches", *searches, *options])
    if status == 0:
        show_differences(Path(args.output) / "runs.csv", args.at)
    return status


if __name__ == "__main__":
    sys.exit(run())
