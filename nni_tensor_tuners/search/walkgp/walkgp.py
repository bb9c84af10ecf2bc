"""The search: what is known goes in, a configuration comes out."""

import functools

import numpy as np
from scipy.linalg import LinAlgError
from threadpoolctl import ThreadpoolController

from ..base import Search, check_choice, check_elsewhere, check_integer, check_number
from .acquisition import Acquisition, Success
from .covariance import KERNELS, Encoder
from .maximise import Pool, maximise
from .process import GaussianProcess
from .scores import performance_scores, success_scale
from .transfer import learn, trend_of


class WalkGP(Search):
    """Gaussian process over the q-random walks of the space's own graphs, expected improvement, learned failures.

    Trials that succeeded are explained by a Gaussian process, their fitness bent by the Box-Cox power that makes it most
    normal and then compressed below the mean. Hyperparameters maximise the marginal likelihood times weak priors. A second
    process with the same kind of kernel learns where trials fail, and

        acquisition(x) = log EI(x) + failure_weight * log P(x succeeds),

    with the improvement counted from the highest posterior mean so far. The candidates are a pool of random configurations,
    offspring of the best ones by crossover and q-random walks, and what hill climbing along the space's edges finds from the
    best of these. Configurations asked and not told yet lower the deviation around them, so that a batch is no set of
    near-copies. What was measured elsewhere (`transfer`) is part of both processes (transfer.py). Where the numbers admit no
    posterior a proposal is random.

    Cost of a proposal, with n results and c candidates: O(n^2 c), c falling as n^-1.5 beyond 200; hyperparameters are fitted to
    at most 256 results each time n has grown by a tenth. When trials cost less than some milliseconds, or thousands of them are
    to be made, OpEvo is the better choice.

    Parameters
    ----------
    initial
        Configurations known or running before the model proposes: of some hundred random ones those that tell most about the
        others.
    offspring
        How many children of the best configurations are among the candidates; 0 for none.
    failure_weight
        0 ignores what is learned about failures.
    kernel
        "mixed"; "walk", "rbf" and "hamming" are there to compare with (`covariance.correlation`).
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
        self.kernel = kernel
        self._encoder = Encoder(space, divisibility)
        self._sources = []  # (posterior of performance, posterior of success, rows) of each
        self._use_sources()

    def transfer(self, histories):
        sources = []
        for history in histories:
            points = []
            for config, _ in history:
                check_elsewhere(self.space, config)
                try:
                    points.append(tuple(p.nearest(config[p.name]) for p in self.space.parameters))
                except ValueError as error:
                    raise ValueError(f"transfer: {error}") from None
            rows = self._encoder.rows(points)
            with _threadpools().limit(limits=1, user_api="blas"):
                sources.append((*learn(self._encoder, self.kernel, rows, [fitness for _, fitness in history]), rows))
        if not any(performance for performance, _, _ in sources):
            raise ValueError("transfer: fewer than two trials succeeded there")
        self._sources += sources
        self._use_sources()

    def _use_sources(self):
        """Set up what depends on the sources: trends, processes and pool."""
        rows = np.vstack([self._encoder.rows([]), *(rows for _, _, rows in self._sources)])
        self._trends = [trend_of([source[kind] for source in self._sources if source[kind]], rows) for kind in (0, 1)]
        width, (first, second) = self._encoder.width, (len(trend.weights) for trend in self._trends)
        columns = slice(width, width + first), slice(width + first, width + first + second)
        self._performance, self._success = (
            GaussianProcess(self._encoder, self.kernel, where, trend.weights) for where, trend in zip(columns, self._trends)
        )
        self._pool = Pool(self.space, self._rows)

    def _rows(self, points):
        """Levels and trend columns, shape (len(points), width and trends)."""
        rows = self._encoder.rows(points)
        return np.hstack([rows, *(trend(rows) for trend in self._trends)])

    def _propose(self):
        with _threadpools().limit(limits=1, user_api="blas"):  # more would fight with the trials for the cores
            try:
                return self._propose_by_model() or self._random_unseen()
            except LinAlgError:
                return self._random_unseen()

    def _propose_by_model(self):
        fitness = {point: value for point, value in self.results.items() if value is not None}
        running = self._rows(sorted((point for point in self._seen if point not in self.results), key=repr))
        self._pool.widen(self._random_point, lambda: self._legal_is_rare, self.rng)
        success = self._condition_on_outcomes() if self.failure_weight else None
        # One score says nothing: it is 0 by definition. So one success is as good as running.
        if len(fitness) > 1:
            rows, scores = self._rows(list(fitness)), performance_scores(np.array(list(fitness.values()), dtype=float))
        else:
            rows, scores, running = self._rows([]), np.zeros(0), np.vstack([running, self._rows(list(fitness))])
        performance = self._performance.posterior(rows, scores, running)
        blind = not self._sources and len(fitness) < 2 and success is None
        if blind or (not self._sources and len(self._seen) < self.initial):
            order = np.argsort(-performance.reductions(self._pool.rows), kind="stable")
            return next((self._pool.points[i] for i in order.tolist() if self._pool.points[i] not in self._seen), None)
        acquisition = Acquisition(performance, success, self.failure_weight)
        return maximise(acquisition, self.space, self._pool, self._rows, fitness, self._seen, self.offspring, self.rng)

    def _condition_on_outcomes(self):
        """The `Success` that the outcomes so far teach, None where nothing has failed, here or elsewhere."""
        outcomes = np.array([value is not None for value in self.results.values()], dtype=bool)
        if outcomes.all() and not any(success for _, success, _ in self._sources):
            return None
        mean, unit = success_scale(outcomes)
        rows = self._rows(list(self.results))
        return Success(self._success.posterior(rows, (outcomes - mean) / unit, rows[:0]), mean, unit)


@functools.cache  # finding the libraries takes milliseconds
def _threadpools():
    return ThreadpoolController()
