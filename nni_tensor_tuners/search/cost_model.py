"""The cost model of AutoTVM: gradient-boosted trees (XGBoost) that rank configurations, or predict their fitness."""

import numpy as np

# AutoTVM's own settings; more rounds than this changed nothing on recorded landscapes.
TREES = {"max_depth": 3, "eta": 0.3, "gamma": 1e-4, "min_child_weight": 1, "lambda": 1.0, "base_score": 0.0}
ROUNDS = 60
# The pairs of equation 2 grow with the square of the results; past this many they are sampled, an equal share for each of them.
MAX_PAIRS = 2**16


class CostModel:
    """An ensemble of boosted trees, each on a bootstrap sample if there is more than one.

    Parameters
    ----------
    objective
        "rank" (equation 2) or "regression", of "Learning to Optimize Tensor Programs", section 3.2.
    members
        How many; their spread estimates the uncertainty.
    generator
        A `numpy.random.Generator`.
    """

    def __init__(self, objective, members, generator):
        self.objective = objective
        self.members = members
        self.generator = generator
        self._boosters = []

    def fit(self, features, labels, groups=None, offset=None):
        """Train anew.

        Parameters
        ----------
        features
            Of shape (n, d).
        labels
            From 0 (worst) to 1, of shape (n,).
        groups
            Which task each row belongs to, in ascending order, of shape (n,); rows of different tasks are not ranked against
            each other. One task if None.
        offset
            Predictions of another model to add to, of shape (n,) (equation 4).
        """
        n = len(labels)
        groups = np.zeros(n, dtype=int) if groups is None else groups
        offset = np.zeros(n) if offset is None else offset
        self._boosters = []
        for _ in range(self.members):
            rows = np.arange(n) if self.members == 1 else np.sort(self.generator.integers(0, n, n))
            self._boosters.append(self._train(features[rows], labels[rows], groups[rows], offset[rows]))

    def predict(self, features):
        """Scores, higher is better: mean and standard deviation over the ensemble, each of shape (n,)."""
        with one_thread():
            scores = np.array([booster.inplace_predict(features) for booster in self._boosters])
        return scores.mean(axis=0), scores.std(axis=0)

    def _train(self, features, labels, groups, offset):
        import xgboost

        rank = {
            "objective": "rank:pairwise",
            "lambdarank_pair_method": "topk" if len(labels) ** 2 <= MAX_PAIRS else "mean",
            "lambdarank_num_pair_per_sample": min(len(labels), max(1, MAX_PAIRS // len(labels))),
            "lambdarank_normalization": False,
        }
        settings = {
            **TREES,
            **(rank if self.objective == "rank" else {"objective": "reg:squarederror"}),
            "seed": int(self.generator.integers(2**31)),
            "nthread": 1,
            "verbosity": 0,
        }
        with one_thread():
            data = xgboost.DMatrix(features, labels, base_margin=offset, qid=groups if self.objective == "rank" else None)
            return xgboost.train(settings, data, ROUNDS)


def one_thread():
    """A context in which XGBoost uses one thread: with some hundreds of rows, more only wait for each other, and two processes
    that each use all cores take ten times as long."""
    import xgboost  # takes a second, so not before a search that needs it is made

    return xgboost.config_context(nthread=1)
