"""Boosted trees that predict scores from features of programs."""

import numpy as np

from ..cost_model import one_thread

TREES = {"max_depth": 4, "eta": 0.15, "subsample": 0.8, "colsample_bytree": 0.5, "nthread": 1, "verbosity": 0}
ROUNDS = 60


def trained(features, scores, seed):
    """A model of the scores, shape (n,), of programs with some features, (n, d)."""
    import xgboost

    with one_thread():
        return xgboost.train({**TREES, "seed": seed}, xgboost.DMatrix(features, scores), ROUNDS)


def predicted(models, features):
    """What each of some models says of features, (m, d): shape (models, m)."""
    with one_thread():
        return np.array([model.inplace_predict(features) for model in models], dtype=float)
