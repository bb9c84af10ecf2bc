"""What programs' features say of scores: further trends, and the configurations that they are known of.

A configuration's program takes milliseconds to make, so that features are known of some candidates only: of those that the
model without them likes best, of offspring of those that it likes best with them, and of random ones; and where sources say which
of random ones are the best, of all of these.
"""

import numpy as np

from ..cost_model import one_thread
from ..described import side_by_side
from .maximise import breed, share
from .process import next_fit
from .trees import predicted, trained

# Each time, so many more candidates of each kind are described, with many trials a share of them (`share`); the offspring are
# the best of so many. Of all candidates the best so many are kept.
LIKED, BRED, BRED_OF, RANDOM, KEPT = 8, 8, 16, 4, 256
# The first trials are the best by the sources of so many random configurations; of more those that sources are wrong about.
FIRST = 256
# Trees are trained so many times, each time without a share of the trials, whose scores they then predict.
FOLDS = 5
# When the trees are trained anew (`process.next_fit`): not when the two processes are fitted, whose phases are 0 and 1 / 3.
PHASE = 2 / 3


class Programs:
    """Boosted trees on features of programs, cross-fitted: no trial's score has a part in what is predicted for it.

    Predictions of what was trained on would leave nothing for the process to explain (stacking; Wolpert 1992, "Stacked
    generalization"). Where there are sources, trees predict what these leave of the scores (AutoTVM's paper, section 4: a local
    model is added to the global one).

    Parameters
    ----------
    space
        A `SearchSpace`.
    described
        A `Described`.
    sources
        `ProgramSources`, or None.

    Attributes
    ----------
    twins
        Points found not worth proposing: what is built for them has been proposed.
    """

    def __init__(self, space, described, sources=None):
        self.space, self._described, self._sources = space, described, sources
        self.twins = set()
        self._foretold, self._first = {}, None  # what sources say of points; random points, the best by that first
        self._models, self._folds, self._fit_at = [], {}, 2 * FOLDS
        self._trends = {}  # point -> what the models predict
        self._values = {}  # candidate -> its acquisition, the last time
        one_thread()  # loads XGBoost now, while nobody waits for a proposal

    def known(self, points):
        """Those of some points that can be built; their features are known then."""
        return self._described.known(points)

    def learn(self, points, scores):
        """Learn from the scores, shape (n,), of trials at `known` points."""
        if len(points) < self._fit_at:
            return
        self._fit_at = next_fit(len(points), PHASE)
        scores = scores if self._sources is None else scores - self._by_sources(points)
        self._folds = {point: place % FOLDS for place, point in enumerate(points)}
        features, fold = self._described.rows(points), np.arange(len(points)) % FOLDS
        self._models = side_by_side(lambda out: trained(features[fold != out], scores[fold != out], out), range(FOLDS))
        self._trends = {}

    def trend(self, points):
        """What the trees predict for `known` points, shape (n,); 0 before anything was learned."""
        if not self._models:
            return np.zeros(len(points))
        if new := [point for point in points if point not in self._trends]:
            found = predicted(self._models, self._described.rows(new))
            folds = np.array([self._folds.get(point, -1) for point in new])
            self._trends.update(zip(new, np.where(folds < 0, found.mean(axis=0), found[folds, np.arange(len(new))])))
        return np.array([self._trends[point] for point in points])

    def trends(self, points):
        """What of the scores of `known` points the trees say and, where there are any, the sources: shape (n, 1 or 2)."""
        return np.transpose([self.trend(points), *([] if self._sources is None else [self._by_sources(points)])])

    def promising(self, points):
        """Of the first of some random points those that can be built, the best by the sources first; always the same."""
        if self._first is None:
            known = [] if self._sources is None else self.known(points[:FIRST])
            self._first = [known[i] for i in np.argsort(-self._by_sources(known), kind="stable").tolist()]
        return self._first

    def _by_sources(self, points):
        if new := [point for point in points if point not in self._foretold]:
            self._foretold.update(zip(new, self._sources.mean(self._described.rows(new))))
        return np.array([self._foretold[point] for point in points])

    def candidates(self, liked, gain, pool, seen, rng):
        """Legal unseen points whose features are known, some of them new.

        Parameters
        ----------
        liked
            Points, those first that the model without features likes best.
        gain
            Function from points to what that model likes of them, shape (n,).
        pool
            Random points.
        """
        most_liked, most_bred, random = (max(1, round(each * share(len(seen)))) for each in (LIKED, BRED, RANDOM))
        bred = breed(self.space, self._values, seen, BRED_OF, rng)
        bred = [bred[i] for i in np.argsort(-gain(bred), kind="stable")[:most_bred].tolist()] if bred else []
        new = [*liked[:most_liked], *bred, *rng.sample(pool, min(random, len(pool))), *self.promising(pool)]
        return [point for point in self.known(dict.fromkeys([*new, *self._values])) if point not in seen]

    def choose(self, points, values, seen):
        """What is built for the best candidate, given their acquisition, for which that is not `seen`; None if there is none.

        Candidates as good or better, for which something is built that is seen, or chosen now, are `twins` from now on.
        """
        order = np.argsort(-values, kind="stable")[:KEPT].tolist()
        built = enumerate(map(self._described.built, [points[i] for i in order]))
        place, chosen = next(((place, point) for place, point in built if point not in seen), (len(order), None))
        self._values = {points[i]: values[i] for i in order[place + 1 :]}
        if chosen is not None:
            self._values[chosen] = values[order[place]]
        self.twins.update({points[i] for i in order[: place + 1]} - {chosen})
        return chosen
