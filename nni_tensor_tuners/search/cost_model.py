"""The cost model of AutoTVM: gradient-boosted trees (XGBoost) that rank configurations, or predict their fitness."""

import numpy as np

# AutoTVM's own settings; more rounds than this changed nothing on recorded landscapes.
TREES = {"max_depth": 3, "eta": 0.3, "gamma": 1e-4, "min_child_weight": 1, "lambda": 1.0, "base_score": 0.0}
ROUNDS = 60
# The pairs of equation 2 grow with the square of the results; past this many per configuration they are sampled.
MAX_PAIRS = 256


class CostModel:
    """An ensemble of boosted trees, each on a bootstrap sample if there is more than one.

    Parameters
    ----------
    objective
        "rank" (equation 2) or "regression", of "Learning to Optimize Tensor Programs".
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
            Which task each row belongs to, in ascending order, of shape (n,); rows of different tasks are not ranked against each other.
            One task if None.
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
        scores = np.array([booster.inplace_predict(features, base_margin=np.zeros(len(features))) for booster in self._boosters])
        return scores.mean(axis=0), scores.std(axis=0)

    def _train(self, features, labels, groups, offset):
        import xgboost  # 1 s to load, and not needed before there are results

        rank = {
            "objective": "rank:pairwise",
            "lambdarank_pair_method": "topk" if len(labels) <= MAX_PAIRS else "mean",
            "lambdarank_num_pair_per_sample": min(len(labels), MAX_PAIRS),
            "lambdarank_normalization": False,
        }
        settings = {
            **TREES,
            **(rank if self.objective == "rank" else {"objective": "reg:squarederror"}),
            "seed": int(self.generator.integers(2**31)),
            "nthread": 1,  # some hundreds of rows: more threads only wait for each other
            "verbosity": 0,
        }
        data = xgboost.DMatrix(features, labels, base_margin=offset, qid=groups if self.objective == "rank" else None)
        return xgboost.train(settings, data, ROUNDS)
