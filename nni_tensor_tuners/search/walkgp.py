"""WalkGP: Bayesian optimisation whose prior is the topology of the search space."""

import functools
from itertools import islice

import numpy as np
from scipy.special import erfcx, ndtr
from threadpoolctl import ThreadpoolController

from .base import Search, check_choice, check_integer, check_number
from .gaussian_process import GaussianProcess, evenly
from .kernel import KERNELS, Encoder

# Random configurations that candidates are drawn from: so many at first, so many more (walked away from old ones) each time.
FIRST_POOL, MORE_POOL, MAX_POOL = 512, 100, 3000
# Where legal ones are too rare to be drawn, so many from each listing.
LISTED = 16
# Offspring are walked from the best so many configurations, with this q.
PARENTS, WALK_Q = 8, 0.3
# Hill climbing over the acquisition: from the best so many candidates, for at most so many rounds.
CLIMBERS, ROUNDS = 8, 4
# Beyond this many results n, fewer candidates are scored: MAX_POOL * (this / n)^1.5.
FULL_POOL_RESULTS = 200
# Hyperparameters are fitted again when there are this many times as many results as last time.
REFIT = 1.1
# The model of failure is asked about this many of the candidates with the highest expected improvement.
SHORT_LIST = 256
MIN_SUCCESS = 0.02
# A model of what was measured elsewhere is trained on at most this many results, and believed like so many trials here.
MAX_SOURCE, SOURCE_TRIALS = 500, 2.0
# The constant beside the sources has this precision. With 1, good sources pay sooner and bad ones cost more.
OFFSET_TRIALS = 10.0
# What is bad elsewhere is bad here, but what is best there seldom is: over its mean a source's score counts this much.
ABOVE_MEAN = 0.5
# With sources, the trial after so many is chosen for what it tells: good ones alone do not say how far they are from the others.
TELLING = 1
# From so many trials on every fourth is proposed as without sources, or every second while they explain less than this share of
# what they were believed to; from so many every second, and half of the others beside the best one: what sources call bad would
# else never be tried.
ALONE_FROM, DOUBTED, LATE = 12, 0.75, 40
# Once trials crowd where the sources point, models of these trials are as sure that what is far from there is bad, and often
# wrong: half of the late ones without sources are made with log lengths shorter by this.
SHORTENED = 0.7
# Box-Cox powers to choose from.
POWERS = (0, 1, 2, 3)


class WalkGP(Search):
    """Gaussian process over the q-random walks of the space's own graphs (kernel.py), expected improvement, learned failures.

    Trials that succeeded are explained by a Gaussian process, their fitness bent by the Box-Cox power that makes it most
    normal and then compressed below the mean. Hyperparameters maximise the marginal likelihood times weak priors. A second
    process with the same kind of kernel learns where trials fail, and

        acquisition(x) = log EI(x) + failure_weight * log P(x succeeds),

    with the improvement counted from the highest posterior mean so far. The candidates are a pool of random configurations,
    offspring of the best ones by crossover and q-random walks, and what hill climbing along the space's edges finds from the
    best of these. Configurations asked and not told yet count as measured with what is predicted for them, so that a batch
    is no set of near-copies.

    What was measured elsewhere (`transfer`) is the prior mean of the scores (see `_Model`). The second trial is then chosen as the
    first ones are without it. From ALONE_FROM trials on every fourth proposal is made without it, every second where it explains
    little. From LATE trials on every second is, half of these with shorter correlation lengths, and every fourth is a neighbour of
    the best configuration, as long as it has one that is unseen.

    Cost of a proposal, with n results and c candidates: O(n^2 c), c falling as n^-1.5 beyond 200; hyperparameters are fitted to
    at most 256 results each time n has grown by a tenth. `make bench` prints the milliseconds. When trials cost less than
    that, or thousands of them are to be made, OpEvo is the better choice.

    Parameters
    ----------
    initial
        Configurations before the model proposes: of some hundred random ones those that tell most about the others.
    offspring
        How many children of the best configurations are among the candidates; 0 for none.
    failure_weight
        0 ignores what is learned about failures.
    kernel
        "mixed"; "walk", "rbf" and "hamming" are there to compare with (`Axis.correlation`).
    divisibility
        Whether discrete integers are also seen by the powers of two that divide them.

    >>> from nni_tensor_tuners import SearchSpace, create_search
    >>> space = SearchSpace.from_json({"X": {"_type": "factor", "_value": [1024, 4]}})
    >>> search = create_search("WalkGP", space, seed=0)
    >>> for _ in range(40):
    ...     for config in search.ask(1):
    ...         search.tell(config, fitness=1 / (1 + abs(config["X"][3] - 32)))
    >>> max(f for f in search.results.values())
    1.0
    """

    def __init__(self, space, seed=0, initial=4, offspring=300, failure_weight=2.0, kernel="mixed", divisibility=True):
        super().__init__(space, seed)
        check_integer("initial", initial)
        check_integer("offspring", offspring, 0)
        check_number("failure_weight", failure_weight, 0, 100)
        check_choice("kernel", kernel, KERNELS)
        if not isinstance(divisibility, bool):
            raise ValueError(f"divisibility must be true or false, got {divisibility!r}")
        self.initial = initial
        self.offspring = offspring
        self.failure_weight = failure_weight
        # One proposal's climbers are mostly the next one's too, and asking what is legal takes longer than scoring it.
        self._neighbours = functools.lru_cache(256)(space.neighbouring_points)
        self._encoder = Encoder(space, divisibility)
        self._model = _Model(self._encoder, kernel)
        self._alone = _Model(self._encoder, kernel)  # never has sources
        self._shorter = _Model(self._encoder, kernel, self._alone)
        self._asked = self._model  # the one of the three that makes this proposal
        self._success = _Model(self._encoder, kernel)
        self._incumbent = None  # the highest posterior mean, once there are two successes
        self._fails = False  # whether the model of success has anything to say
        self._mean_success, self._deviation_of_success = 1.0, 1.0
        self._pool = []  # random legal points, and their rows
        self._pool_rows = np.zeros((0, self._encoder.width), dtype=np.float32)

    def _propose(self):
        with _threadpools().limit(limits=1, user_api="blas"):  # more would fight with the trials for the cores
            return self._propose_by_model()

    def transfer(self, histories):
        for history in histories:
            known = [(config, fitness) for config, fitness in history if fitness is not None]
            if len(known) < 2:
                continue
            rows = self._encoder.rows_elsewhere([config for config, _ in known])
            scores = standard_scores(np.array([fitness for _, fitness in known]))
            chosen = evenly(scores, MAX_SOURCE)
            source = GaussianProcess(self._encoder, self._model.process.kernel)
            with _threadpools().limit(limits=1, user_api="blas"):
                source.fit(rows[chosen], scores[chosen])
                source.append(rows[chosen])
                source.explain(scores[chosen])
            self._model.sources.append(source)
        if not self._model.sources:
            raise ValueError("transfer: fewer than two trials succeeded there")

    def _propose_by_model(self):
        fitness = {point: value for point, value in self.results.items() if value is not None}
        failed = len(self.results) - len(fitness)
        trial, sources = len(self._seen), self._model.sources
        blind = not (sources or (failed and self.failure_weight)) and len(fitness) < 2
        if blind or (trial == TELLING if sources else trial < self.initial):
            return self._most_telling() or self._random_unseen()
        late = sources and trial >= LATE
        if len(fitness) >= 2:
            pending = sorted(point for point in self._seen if point not in self.results)
            scores = standard_scores(np.array(list(fitness.values())))
            alone = sources and trial >= ALONE_FROM and trial % (2 if late or self._model.doubted else 4) == 0
            self._asked = self._model
            if alone:
                self._asked = self._shorter if late and trial % 4 == 2 else self._alone
            self._incumbent = self._asked.learn(dict(zip(fitness, scores.tolist())), pending)
        self._learn_failures()
        beside = self._beside_best(fitness) if late and trial % 4 == 1 else None
        return beside or self._maximise(fitness) or self._random_unseen()

    def _most_telling(self):
        """The unseen configuration of the pool that tells most about the rest of it, or None where there is none."""
        if not self._pool:
            self._widen_pool()
        process = GaussianProcess(self._encoder, self._model.process.kernel)
        process.append(self._encoder.rows(sorted(self._seen)))
        order = np.argsort(-process.reductions(self._pool_rows), kind="stable")
        return next((self._pool[i] for i in order.tolist() if self._pool[i] not in self._seen), None)

    def _learn_failures(self):
        """Train the model of success: 1 or 0 minus a mean, in standard deviations."""
        outcomes = {point: value is not None for point, value in self.results.items()}
        successes = sum(outcomes.values())
        # As after two successes more and half a failure: a first failure is no reason to stay away from everything.
        self._mean_success = (successes + 2) / (len(outcomes) + 2.5)
        self._deviation_of_success = max(0.2, (self._mean_success * (1 - self._mean_success)) ** 0.5)
        self._fails = successes < len(outcomes) and self.failure_weight > 0
        if self._fails:
            unit = self._deviation_of_success
            self._success.learn({point: (outcome - self._mean_success) / unit for point, outcome in outcomes.items()}, [])

    def _acquisition(self, rows):
        """log EI + failure_weight log P(success) of rows, shape (m,); minus infinity off the short list."""
        if self._incumbent is None:
            value = self._model.from_elsewhere(rows)
        else:
            value = log_expected_improvement(*self._asked.predict(rows), self._incumbent)
        if not self._fails:
            return value
        best = np.argsort(-value, kind="stable")[:SHORT_LIST]  # the second term is never positive
        success = self._mean_success + self._deviation_of_success * self._success.process.predict(rows[best])[0]
        weighed = np.full(len(value), -np.inf)
        weighed[best] = value[best] + self.failure_weight * np.log(np.clip(success, MIN_SUCCESS, 1.0))
        return weighed

    def _beside_best(self, fitness):
        """The unseen neighbour of the best configuration with the highest acquisition, or None where there is none."""
        best = max(fitness, key=fitness.get, default=None)
        around = [point for point in self._neighbours(best) if point not in self._seen] if best else []
        return around[int(np.argmax(self._acquisition(self._encoder.rows(around))))] if around else None

    def _maximise(self, fitness):
        """The unseen legal point with the highest acquisition that could be found, or None where none was found."""
        found = {}

        def consider(points, rows):
            if points:
                values = self._acquisition(rows)
                best = [i for i in np.argsort(-values, kind="stable").tolist() if points[i] not in self._seen]
                found.update((points[i], values[i]) for i in best[:CLIMBERS])

        self._widen_pool()
        limit = int(MAX_POOL * (FULL_POOL_RESULTS / max(1, len(self.results))) ** 1.5)
        consider(self._pool[-limit:], self._pool_rows[-limit:])
        children = self._children(fitness, min(self.offspring, limit))
        consider(children, self._encoder.rows(children))
        climbed = set()
        for _ in range(ROUNDS if found else 0):
            before = max(found.values())
            climbers = [point for point in sorted(found, key=found.get, reverse=True)[:CLIMBERS] if point not in climbed]
            climbed.update(climbers)
            around = dict.fromkeys(q for p in climbers for q in self._neighbours(p) if q not in found)
            consider(list(around), self._encoder.rows(list(around)))
            if max(found.values()) == before:
                break
        return max(found, key=found.get) if found else None

    def _widen_pool(self):
        """Add random points to the pool; the oldest leave it when it is full."""
        if not self._pool:
            drawn = [self._random_point()]
            if self._legal_is_rare:
                for _ in range(FIRST_POOL // LISTED):  # a listing starts anywhere, but goes on nearby
                    drawn += islice(self.space.points(self.rng), LISTED)
            else:
                drawn += (self._random_point() for _ in range(FIRST_POOL - 1))
            new = dict.fromkeys(point for point in drawn if point is not None)
        else:
            old = set(self._pool)
            walked = (self.space.walk_point(self.rng.choice(self._pool), 0.5, self.rng) for _ in range(MORE_POOL))
            new = dict.fromkeys(point for point in walked if point not in old and self.space.is_legal(point))
        self._pool = [*self._pool, *new][-MAX_POOL:]
        self._pool_rows = np.vstack([self._pool_rows, self._encoder.rows(list(new))])[-MAX_POOL:]

    def _children(self, fitness, count):
        """Unseen legal offspring of the best configurations: half of them by uniform crossover, all by q-random walks."""
        parents = sorted(fitness, key=fitness.get, reverse=True)[:PARENTS]
        children = {}  # a dict for its order
        for _ in range(count if parents else 0):
            child = parents[int(len(parents) * self.rng.random() ** 2)]
            if self.rng.random() < 0.5:
                child = tuple(self.rng.choice(pair) for pair in zip(child, self.rng.choice(parents)))
            child = self.space.walk_point(child, WALK_Q, self.rng)
            if child not in self._seen and child not in children and self.space.is_legal(child):
                children[child] = None
        return list(children)


class _Model:
    """A Gaussian process over points that is fitted again when it has grown by a tenth.

    ``sources`` are processes that have learned the same operator elsewhere. Their means m_s, where positive times ABOVE_MEAN, are
    its prior mean, b_0 + sum of b_s m_s(x), with b_s ~ N(1, 1 / SOURCE_TRIALS) estimated together with the scores (generalised
    least squares): sources count in full at the start, and as much as they explain later; less than nothing where they mislead.
    b_0 ~ N(0, 1 / OFFSET_TRIALS) is there because scores are 0 in the mean over the trials made here, and m_s over those made
    there: trials that follow a good source are all good ones.

    A model that is given another one is not fitted, but has the hyperparameters of that, with log lengths less by SHORTENED.
    """

    def __init__(self, encoder, kernel, fitted=None):
        self.process = GaussianProcess(encoder, kernel)
        self.sources = []
        self._fitted = fitted
        self._encoder = encoder
        self._share = np.zeros(0)  # b_s, and last b_0
        self._points = []  # those of the process's rows
        self._fit_at = 0

    def learn(self, scores, pending):
        """Explain scores (point -> score) and count pending points as measured with their mean; returns the highest mean."""
        measured = np.array(list(scores.values()))
        if self._fitted:
            self.process.shorten(self._fitted.process, SHORTENED)
        elif len(scores) >= self._fit_at:
            rows = self._encoder.rows(list(scores))
            means = self._means(rows)
            self._share = self._shares(means, measured, lambda values: values)
            self.process.fit(rows, measured - means @ self._share)
            self._fit_at = max(len(scores) + 1, int(len(scores) * REFIT))
        wanted = dict.fromkeys([*scores, *pending])
        if any(point not in wanted for point in self._points):  # it was pending, and has failed
            self.process.clear()
        self._points = self._points[: len(self.process)]  # none if it was cleared
        known = set(self._points)
        new = [point for point in wanted if point not in known]
        if new:
            self.process.append(self._encoder.rows(new))
            self._points += new
        targets = np.array([scores.get(point, np.nan) for point in self._points])
        if not self.sources:
            return self.process.explain(targets).max()
        means = self._means(self._encoder.rows(self._points))
        if not np.isnan(targets).any():  # with trials outstanding the shares stay as they were
            self._share = self._shares(means, targets, self.process.solve)
        expected = means @ self._share
        return (self.process.explain(targets - expected) + expected).max()

    def predict(self, rows):
        """Posterior mean and standard deviation of scores, of shape (m,) each."""
        mean, deviation = self.process.predict(rows)
        return (mean + self._means(rows) @ self._share if self.sources else mean), deviation

    @property
    def doubted(self):
        """Whether the sources' factors b_s, 1 before anything is learned, have fallen below DOUBTED together."""
        return len(self._share) > 0 and self._share[:-1].sum() < DOUBTED

    def from_elsewhere(self, rows):
        """What the sources alone say, of shape (m,)."""
        return sum((source.mean(rows) for source in self.sources), np.zeros(len(rows)))

    def _means(self, rows):
        """The terms of the prior mean, of shape (m, sources + 1): the sources', and a one; (m, 0) without sources."""
        if not self.sources:
            return np.zeros((len(rows), 0))
        means = np.array([source.mean(rows) for source in self.sources]).T
        return np.column_stack([np.where(means > 0, ABOVE_MEAN * means, means), np.ones(len(rows))])

    def _shares(self, means, scores, solve):
        """b, of shape (sources + 1,): (M' K^-1 M + P)^-1 (M' K^-1 z + P b'), with b' = (1, ..., 1, 0) and P its precisions."""
        if not self.sources:
            return np.zeros(0)
        precision = np.array([SOURCE_TRIALS] * len(self.sources) + [OFFSET_TRIALS])
        expected = np.array([1.0] * len(self.sources) + [0.0])
        whitened = solve(means)
        return np.linalg.solve(means.T @ whitened + np.diag(precision), whitened.T @ scores + precision * expected)


def standard_scores(fitness):
    """Fitness, shape (n,), bent by the Box-Cox power that makes it most like a normal sample, compressed below, standardised.

    Powers from 0 (the logarithm, for kernels that differ by orders of magnitude) to 3 (which spreads out a ceiling that many
    come close to); chosen by the profile likelihood (Box and Cox 1964, section 3). Where not all are positive they stay as
    they are. Below the mean scores fall by the logarithm only: how slow a slow kernel is matters little, and it may have been
    a fast one that was disturbed while it was timed.
    """
    scores = fitness
    if fitness.min() > 0:
        logs = np.log(fitness)
        logs -= logs.mean()  # with the geometric mean as unit the Jacobian drops out of the likelihood
        scores = min((np.expm1(power * logs) / power if power else logs for power in POWERS), key=np.var)
    scores = _standardised(scores)
    return _standardised(np.where(scores < 0, -np.log1p(-np.minimum(scores, 0)), scores))


def _standardised(scores):
    scores = scores - scores.mean()
    deviation = scores.std()
    return scores / deviation if deviation > 1e-12 else np.zeros(len(scores))


def log_expected_improvement(mean, deviation, incumbent):
    """Log of the expected improvement of normal variables over ``incumbent``; arrays of shape (m,)."""
    u = (mean - incumbent) / deviation
    # Below the incumbent the density is taken out of pdf(u) + u cdf(u), which there underflows and cancels.
    below, above = np.minimum(u, 0.0), np.maximum(u, 0.0)
    left = np.log1p(below * np.sqrt(np.pi / 2) * erfcx(-below / np.sqrt(2))) - (below**2 + np.log(2 * np.pi)) / 2
    right = np.log(above * ndtr(above) + np.exp(-(above**2) / 2) / np.sqrt(2 * np.pi))
    return np.where(u < 0, left, right) + np.log(deviation)


@functools.cache  # finding the libraries takes milliseconds
def _threadpools():
    return ThreadpoolController()
