"""AutoTVM: search guided by a learned cost model (Chen et al., "Learning to Optimize Tensor Programs", arXiv 1805.08166)."""

import heapq
import logging
import math
import time

import numpy as np

from ..space.nested import flatten
from .base import CONFIGURATION, SEEN, TREE, Search, check_choice, check_integer, check_number, nearest_here
from .cost_model import CostModel, one_thread

_log = logging.getLogger(__name__)

MODELS = ("xgboost", "treegru")
# Simulated annealing stops early after this many steps that brought no better candidate (as in AutoTVM).
IDLE_STEPS = 50
# Bootstrapped models for an acquisition that needs uncertainty (section 6.1).
BOOTSTRAPPED = 5
# Standard deviations that the upper confidence bound adds to the mean.
CONFIDENCE = 1.0
# Of simulated annealing, where seeing a configuration costs nothing, and where its program must be made first, milliseconds
# each: so many chains, None for one for each configuration of a batch, and so many steps.
ANNEALING = {True: (128, 500), False: (None, 8)}
# So many are drawn for each chain, in search of one whose program can be built, and for each place in a batch that is random.
DRAWS = 8


class AutoTVM(Search):
    """The search of AutoTVM, Algorithm 1: batches that a cost model and simulated annealing choose.

    The first ``batch_size`` configurations are random. Then, whenever a batch has been handed out, boosted trees are trained on
    all results; ``chains`` Markov chains, which go on where they stopped last time, anneal over the model's scores; of the best
    candidates a diverse batch is chosen greedily (equation 3), and a fraction ``epsilon`` of it is random.

    A step of a chain gives one parameter another of its values; one that breaks a constraint is not taken. The log says how
    long fitting and annealing took; on a space of three factor parameters some tenths of a second per batch.

    Where it departs from the paper:

    - By default the model sees the configuration's own numbers (`Parameter.tree_features`). With the program's, loop contexts
      (section A.2.1) or relation features (A.2.2), annealing is shorter: a program takes milliseconds to make.
    - Of its TreeGRU the context-encoded one is here (figure 3d), which transfers; how it is trained the paper leaves open.
    - A batch is chosen from the results there are when the one before has been handed out, so that trials can run side by side;
      told in turn, it is Algorithm 1.
    - No configuration is measured twice, nor, with features of programs, are two of the same program.
    - Labels go from 0 (the worst, and all that failed) to 1 (the best), for both objectives. Past 2^16 pairs, those of equation
      2 are sampled.
    - Alpha in equation 3 is in standard deviations of the candidates' scores.
    - Of what the paper leaves open: temperature falls from 1 to 0 standard deviations of the chains' first scores; annealing
      ends early after 50 steps that brought no better candidate, as in TVM; epsilon of a small batch is a share on average;
      improvement is counted from the model's best score of what was measured; the confidence bound is one deviation above the
      mean.
    - With features of programs, what is transferred (`transfer`) is section 4: one global model of any tasks, shapes and
      devices, and equation 4. By default it is configurations, which that section turns away from: in figure 9 they serve
      within one task only. Here they serve between shapes and devices that have the same parameters, as far as the same tiles
      are good there.

    Parameters
    ----------
    batch_size
        b; 64 in the paper. Budgets of 200 trials do better with 16: see the README's table.
    objective
        "rank" (equation 2) or "regression". Left out, it is the paper's: "rank", and "regression" with the acquisitions "ei"
        and "ucb" (section 6.1).
    acquisition
        "mean" (the paper's choice), or "ei" (expected improvement) or "ucb" (upper confidence bound) over 5 bootstrapped
        models.
    model
        "xgboost", boosted trees, or "treegru", which sees the programs' loops themselves and takes PyTorch.
    features
        What boosted trees see: "configuration", "loop", "relation", or "store", which are MetaSchedule's. All but the first take a
        task whose programs they are of.
    chains, steps
        Of the simulated annealing; left out, 128 and 500, as in the paper (section A.3), and with features of programs
        ``batch_size`` and 8.
    epsilon
        Fraction of random configurations in a batch; 0.05 in the paper.
    candidates
        lambda: a batch is chosen from the best ``candidates`` x ``batch_size``; 1 switches diversity off. The paper tries 1, 2
        and 4, and chooses none.
    diversity
        alpha, what a parameter value that is new to the batch is worth, in standard deviations of the candidates' scores. The
        paper gives none.

    >>> from nni_tensor_tuners import SearchSpace, create_search
    >>> space = SearchSpace.from_json({"X": {"_type": "factor", "_value": [1024, 4]}})
    >>> search = create_search("AutoTVM", space, seed=0, batch_size=16)
    >>> for _ in range(48):
    ...     for config in search.ask(1):
    ...         search.tell(config, fitness=1 / (1 + abs(config["X"][3] - 32)))
    >>> max(f for f in search.results.values())
    1.0
    """

    def __init__(
        self,
        space,
        seed=0,
        batch_size=64,
        objective=None,
        acquisition="mean",
        model="xgboost",
        features=CONFIGURATION,
        chains=None,
        steps=None,
        epsilon=0.05,
        candidates=2,
        diversity=0.5,
    ):
        super().__init__(space, seed)
        check_integer("batch_size", batch_size)
        check_choice("acquisition", acquisition, ("mean", "ei", "ucb"))
        if objective is None:
            objective = "rank" if acquisition == "mean" else "regression"
        check_choice("objective", objective, ("rank", "regression"))
        check_choice("model", model, MODELS)
        check_choice("features", features, SEEN)
        if model == "treegru" and features != CONFIGURATION:
            raise ValueError(f"features: {features} are for model: xgboost; a TreeGRU sees the loops themselves")
        self.model = model
        self.features = TREE if model == "treegru" else None if features == CONFIGURATION else features
        usual_chains, usual_steps = ANNEALING[self.features is None]
        chains = usual_chains or batch_size if chains is None else chains
        steps = usual_steps if steps is None else steps
        check_integer("chains", chains)
        check_integer("steps", steps)
        check_number("epsilon", epsilon, 0, 1)
        check_integer("candidates", candidates)
        check_number("diversity", diversity, 0, 100)
        self.batch_size = batch_size
        self.objective = objective
        self.acquisition = acquisition
        self.chains = chains
        self.steps = steps
        self.epsilon = epsilon
        self.candidates = candidates
        self.diversity = diversity
        self._generator = np.random.default_rng(self.rng.getrandbits(64))
        self.model_seconds = []  # one entry per batch: fitting and annealing
        self._cost_model(1)  # loads XGBoost or PyTorch now, while nobody waits for a proposal
        self._global = None  # a model of what was measured elsewhere
        self._states = []  # of the chains
        self._batch = []
        self._features = [{} for _ in space.parameters]  # vertex -> its features, by parameter
        self._movable = [i for i, parameter in enumerate(space.parameters) if parameter.size > 1]

    def transfer(self, histories):
        """Train a global model (equation 4) on what was measured elsewhere; see the class for what section 4 has of it.

        Raises
        ------
        ValueError
            If nothing was measured there, or if the configurations have other parameters.
        """
        rows, labels, groups = [], [], []
        for group, history in enumerate(histories):
            rows += [self._features_elsewhere(config) if self.features is None else config for config, _ in history]
            labels.append(normalised([fitness for _, fitness in history]))
            groups += [group] * len(history)
        if not rows:
            raise ValueError("transfer: nothing was measured there")
        try:
            rows = np.array(rows, dtype=float)
        except (TypeError, ValueError):
            raise ValueError(f"transfer: expected features of programs, {self.features}, all of one length") from None
        self._global = self._cost_model(1)
        self._global.fit(rows, np.concatenate(labels), np.array(groups))

    @property
    def transfer_features(self):
        return self.features

    def _propose(self):
        self.check_described()
        if (point := self._pop_unseen(self._batch)) is not None:
            return point
        if self._global is not None or len(self.results) >= self.batch_size:
            self._batch = self._choose_batch()
        return self._batch.pop(0) if self._batch else self._random_unseen()

    def _choose_batch(self):
        """Up to ``batch_size`` unseen points: those the model likes best, and some random ones at the end."""
        start = time.perf_counter()
        score = self._fit()
        if score is None:
            return []
        fitted = time.perf_counter()
        found, steps = self._anneal(score)
        expected = self.epsilon * self.batch_size
        n_random = int(expected) + (self.rng.random() < expected % 1)  # small batches have their share too, on average
        batch = self._pick(found, self.batch_size - n_random)
        annealed = time.perf_counter()
        self.model_seconds.append(annealed - start)
        _log.info(
            "cost model of %d results: fitted in %.2f s, annealed %d steps in %.2f s",
            len(self.results),
            fitted - start,
            steps,
            annealed - fitted,
        )
        for _ in range(DRAWS * self.batch_size):
            if len(batch) == self.batch_size or (point := self._random_unseen()) is None or point in batch:
                break  # of few that are left, the next batch has the others
            self._add(batch, point)
        return batch

    # The cost model.

    def _fit(self):
        """Train on all results; returns a function from points to scores, or None where there is nothing to learn from."""
        points = self._seen_by_model(list(self.results))
        labels = normalised([self.results[point] for point in points])
        if not labels.any():
            return None if self._global is None else self._scorer(self._global.predict)
        rows = self._rows(points)
        elsewhere = self._global.predict(rows)[0] if self._global else None
        local = self._cost_model(1 if self.acquisition == "mean" else BOOTSTRAPPED)
        local.fit(rows, labels, offset=elsewhere)

        def predict(rows):
            mean, deviation = local.predict(rows)
            return (mean + self._global.predict(rows)[0] if self._global else mean), deviation  # Equation (4)

        return self._scorer(predict, predict(rows)[0].max())

    def _scorer(self, predict, incumbent=None):
        """Function from points to their acquisition, shape (n,), minus infinity where the model cannot see one.

        Without an ``incumbent``, the best score of what was measured, there is no improvement to expect: the mean counts.
        """

        def score(points):
            known = self._seen_by_model(points)
            kept = set(known)
            seen = np.array([point in kept for point in points], dtype=bool)
            scores = np.full(len(points), -np.inf)
            if known:
                mean, deviation = predict(self._rows(known))
                if self.acquisition == "ei" and incumbent is not None:
                    mean = expected_improvement(mean, deviation, incumbent)
                scores[seen] = mean + CONFIDENCE * deviation if self.acquisition == "ucb" else mean
            return scores

        return score

    def _cost_model(self, members):
        if self.model == "xgboost":
            one_thread()
            return CostModel(self.objective, members, self._generator)
        try:
            from .tree_gru import TreeGRU
        except ImportError:
            raise ValueError("model: treegru takes PyTorch: pip install 'nni_tensor_tuners[treegru]'") from None
        return TreeGRU(self.objective, members, self._generator)

    def _seen_by_model(self, points):
        """Those of some points that the model can see: of programs, those that can be built."""
        return points if self._described is None else self._described.known(points)

    def _rows(self, points):
        if self._described is not None:
            return self._described.rows(points)
        return np.array([[x for i, vertex in enumerate(point) for x in self._features_of(i, vertex)] for point in points])

    def _features_of(self, i, vertex):
        known = self._features[i]
        if vertex not in known:
            known[vertex] = self.space.parameters[i].tree_features(vertex)
        return known[vertex]

    def _features_elsewhere(self, config):
        """Features of a configuration of another space with the same parameters: other extents, other values."""
        point, values = nearest_here(self.space, config), flatten(config)
        return [
            x
            for parameter, vertex in zip(self.space.parameters, point)
            for x in (
                parameter.tree_features(vertex) if vertex is None else parameter.features_of_value(values[parameter.name])
            )
        ]

    # Simulated annealing.

    def _anneal(self, score):
        """The best unseen points that the chains came by, as {point: score}, and the number of steps made.

        Temperature falls from 1 to 0 in units of the scores' standard deviation over the chains' first states.
        """
        for _ in range(DRAWS * self.chains):
            if len(self._states) == self.chains or (point := self._random_point()) is None:
                break
            if self._seen_by_model([point]):
                self._states.append(point)
        if not self._states or not self._movable:
            return {}, 0
        scores = score(self._states)
        unit = float(scores.std()) or 1.0
        best = _Best(self.candidates * self.batch_size)
        for point, value in zip(self._states, scores.tolist()):
            self._consider(best, point, value)
        idle = step = 0
        for step in range(1, self.steps + 1):
            temperature = (1 - step / self.steps) * unit
            moved = [self._moved(point) for point in self._states]
            proposed = score(moved)
            thresholds = self._generator.random(len(moved))
            improved = False
            accepted = np.exp(np.minimum((proposed - scores) / (temperature + 1e-9), 0.0)) > thresholds
            for i in np.flatnonzero(accepted).tolist():
                if self.space.is_legal(moved[i]):  # last, because it costs more than the rest of a step
                    self._states[i] = moved[i]
                    scores[i] = proposed[i]
                    improved |= self._consider(best, moved[i], float(proposed[i]))
            idle = 0 if improved else idle + 1
            if idle == IDLE_STEPS:
                break
        return best.found, step

    def _moved(self, point):
        movable = [i for i in self._movable if point[i] is not None]
        i = movable[int(self.rng.random() * len(movable))] if movable else None
        moved = (self.space.parameters[i].sample_other(v, self.rng) if i == j else v for j, v in enumerate(point))
        return self.space.drawn(self.rng, moved)

    def _consider(self, best, point, value):
        return math.isfinite(value) and point not in self._seen and best.add(point, value)

    def _pick(self, found, n):
        """Greedy maximisation of equation (3): score, and alpha for each parameter value that the batch does not have yet.

        Of points with the same program there is one, none of what has been seen.
        """
        left = sorted(found, key=found.get, reverse=True)
        unit = float(np.std(list(found.values()))) or 1.0 if found else 1.0
        covered, picked = set(), []
        while left and len(picked) < n:
            gain = [
                found[point] + self.diversity * unit * sum(component not in covered for component in enumerate(point))
                for point in left
            ]
            point = left.pop(gain.index(max(gain)))
            if self._add(picked, point):
                covered.update(enumerate(picked[-1]))
        return picked

    def _add(self, batch, point):
        """Add what is built for a point to a batch, unless that has been seen or is in it; returns whether it was added."""
        built = self._described.built(point) if self._described is not None and self._seen_by_model([point]) else point
        if built in self._seen or built in batch:
            return False
        batch.append(built)
        return True


class _Best:
    """The ``size`` highest of the points added."""

    def __init__(self, size):
        self.size = size
        self.found = {}
        self._heap = []

    def add(self, point, value):
        """Add a point; True if it is one of the highest, and was not before."""
        if point in self.found or (len(self._heap) == self.size and value <= self._heap[0][0]):
            return False
        self.found[point] = value
        heapq.heappush(self._heap, (value, len(self.found), point))
        if len(self._heap) > self.size:
            del self.found[heapq.heappop(self._heap)[2]]
        return True


def normalised(fitnesses):
    """Labels from 0 (the worst, and what failed) to 1 (the best), of shape (n,); all 0 where nothing differs."""
    known = [fitness for fitness in fitnesses if fitness is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)
    failed = any(fitness is None for fitness in fitnesses)
    if failed and low > 0:
        low = 0.0
    span = high - low
    return np.array([0.0 if fitness is None or span == 0 else (fitness - low) / span for fitness in fitnesses])


def expected_improvement(mean, deviation, incumbent):
    """Expected improvement of a normal variable over ``incumbent``; arrays of shape (n,)."""
    deviation = np.maximum(deviation, 1e-9)
    z = (mean - incumbent) / deviation
    below = np.array([0.5 * math.erfc(-x / math.sqrt(2)) for x in z])
    return deviation * (z * below + np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi))
