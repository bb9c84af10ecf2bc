"""What each part of WalkGP is worth: WalkGP with one part at a time replaced or left out, replayed.

usage: ablation.py LANDSCAPE... [--seeds N] [any other option of `tensor-tuners replay`]
"""

import sys

import numpy as np

from nni_tensor_tuners.cli import main
from nni_tensor_tuners.search import SEARCHES, WalkGP
from nni_tensor_tuners.search.cost_model import one_thread

ARGUMENTS = ["kernel=walk", "kernel=rbf", "kernel=hamming", "divisibility=false", "failure_weight=0", "offspring=0"]
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
        self._model = _Forest(self._encoder, self._model.process)


class _Forest:
    """What WalkGP asks of its model, answered by a random forest."""

    sources = ()

    def __init__(self, encoder, process):
        self.process = process  # whose kernel the first trials are chosen by
        self._encoder = encoder
        self._level = np.zeros((encoder.width, len(encoder.axes)), dtype=np.float32)
        for axis, block in enumerate(encoder.blocks()):
            self._level[block, axis] = np.arange(block.stop - block.start)

    def learn(self, scores, pending):
        import xgboost

        rows, measured = self._encoder.rows(list(scores)), np.array(list(scores.values()))
        with one_thread():
            self._forest = xgboost.train({**FOREST, "seed": len(scores)}, xgboost.DMatrix(rows @ self._level, measured), 1)
        leaves = self._leaves(rows)
        count = np.apply_along_axis(np.bincount, 0, leaves, minlength=leaves.max() + 1)
        total, squares = (
            np.array([np.bincount(leaf, weights=values, minlength=len(count)) for leaf in leaves.T]).T
            for values in (measured, measured**2)
        )
        self._mean = total / np.maximum(count, 1)  # by leaf and tree
        self._variance = np.maximum(squares / np.maximum(count, 1) - self._mean**2, 0)
        return self.predict(rows)[0].max()

    def predict(self, rows):
        """The mean over the trees, and the deviation of a mixture of their leaves."""
        leaves = self._leaves(rows)
        trees = np.arange(leaves.shape[1])
        means = self._mean[leaves, trees]
        variance = means.var(axis=1) + self._variance[leaves, trees].mean(axis=1)
        return means.mean(axis=1), np.sqrt(np.maximum(variance, 1e-6))

    def _leaves(self, rows):
        """Which leaf of each tree, of shape (m, trees)."""
        import xgboost

        with one_thread():
            leaves = self._forest.predict(xgboost.DMatrix(rows @ self._level), pred_leaf=True)
        return leaves.reshape(len(rows), -1).astype(int)


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        sys.exit(__doc__.strip())
    SEARCHES |= {"RandomStart": RandomStart, "RandomForest": RandomForest}
    searches = ["WalkGP", *(f"WalkGP:{argument}" for argument in ARGUMENTS), "RandomStart", "RandomForest"]
    sys.exit(main(["replay", *sys.argv[1:], "--searches", *searches]))
