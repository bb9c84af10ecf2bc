"""The search: what is known goes in, a configuration comes out."""

import functools

import numpy as np
from scipy.linalg import LinAlgError
from threadpoolctl import ThreadpoolController

from ...space.nested import Branches
from ..base import CONFIGURATION, SEEN, Search, check_choice, check_integer, check_number, nearest_here
from .acquisition import expected_gain
from .covariance import KERNELS, WalkKernel
from .maximise import Pool, maximise, share
from .process import GaussianProcess
from .program_sources import ProgramSources
from .programs import Programs
from .scores import performance_scores, success_scale
from .transfer import SOURCE_TRIALS, learn, trend_of

# The one rule that goes by a trial's number: every so many-th proposal is made as without sources.
ALONE_EVERY = 4
# Branches of a nested choice are spaces of their own, of which nothing is known; with many of them trials are too dear for it.
MOST_BLIND = 16
# What is seen of programs, where the space is one of sketches.
USUAL = "relation"


class WalkGP(Search):
    """Gaussian process over the q-random walks of the space's own graphs, expected improvement, learned failures.

    One process explains the scores of the trials that succeeded, a second one which succeed, and

        acquisition(x) = log EI(x) + failure_weight * log P(x succeeds)

    is maximised over random configurations, offspring of the best ones, and along the space's edges. What was measured
    elsewhere (`transfer`) is part of both processes, what programs are like of the first. docs/walkgp.md has the equations.
    When trials cost less than some milliseconds, or thousands of them are to be made, OpEvo is the better choice.

    Parameters
    ----------
    initial
        So many configurations, those told included, before the model proposes: of some hundred random ones the most telling.
        Of a space with a nested choice so many for each branch, 16 in all at the most if this is less. Twice as many in all, those
        that should be the best, where `transfer` took features of programs; none where it took configurations.
    offspring
        How many children of the best configurations are among the candidates; 0 for none.
    failure_weight
        0 ignores what is learned about failures.
    kernel
        "mixed"; "walk", "rbf" and "hamming" are there to compare with (`covariance.correlation`).
    divisibility
        Whether discrete integers are also seen by the powers of two that divide them.
    features
        What of programs boosted trees see whose prediction is one more trend, where the task is known: "relation", "loop" or
        "store" (`AutoTVM`); "configuration" does without. Left out, "relation" in spaces with a nested choice, such as
        sketches. Named here, they are also what `transfer` takes, of any operators, shapes and devices; else it takes
        configurations.

    >>> from nni_tensor_tuners import SearchSpace, create_search
    >>> space = SearchSpace.from_json({"X": {"_type": "factor", "_value": [1024, 4]}})
    >>> search = create_search("WalkGP", space, seed=0)
    >>> for _ in range(40):
    ...     for config in search.ask(1):
    ...         search.tell(config, fitness=1 / (1 + abs(config["X"][3] - 32)))
    >>> max(f for f in search.results.values())
    1.0
    """

    def __init__(
        self,
        space,
        seed=0,
        initial=4,
        offspring=300,
        failure_weight=2.0,
        kernel="mixed",
        divisibility=True,
        features=None,
    ):
        super().__init__(space, seed)
        check_integer("initial", initial)
        check_integer("offspring", offspring, 0)
        check_number("failure_weight", failure_weight, 0, 100)
        check_choice("kernel", kernel, KERNELS)
        if not isinstance(divisibility, bool):
            raise ValueError(f"divisibility must be true or false, got {divisibility!r}")
        self.initial, self.offspring, self.failure_weight = initial, offspring, failure_weight
        nested = [each for each in space.parameters if isinstance(each, Branches)]
        if features is not None:
            check_choice("features", features, SEEN)
        self._transfer_features = None if features == CONFIGURATION else features
        self.features = USUAL if features is None and nested else self._transfer_features
        self._of_programs, self._elsewhere = [], None  # histories of programs' features, and what they say
        self._kernel = WalkKernel(space, kernel, divisibility)
        self._blind = max(initial, min(MOST_BLIND, initial * sum(each.size for each in nested)))
        self._sources = []
        self._set_up()

    def see(self, describe, settle=None):
        super().see(describe, settle)
        self._set_up()

    @property
    def transfer_features(self):
        return self._transfer_features

    def transfer(self, histories):
        if any(not isinstance(each, dict) for history in histories for each, _ in history):
            with _one_thread():
                self._elsewhere = ProgramSources([*self._of_programs, *histories])
            self._of_programs += histories
            return self._set_up()
        sources = [self._source(history) for history in histories]
        if not any(source.performance for source in sources):
            raise ValueError("transfer: fewer than two trials succeeded there")
        self._sources += sources
        self._set_up()

    def _source(self, history):
        points = [nearest_here(self.space, config) for config, _ in history]
        with _one_thread():
            return learn(self._kernel, self._kernel.rows(points), [fitness for _, fitness in history])

    def _set_up(self):
        """Make what depends on the sources: the trends, the processes, what is known of programs, and the pool."""
        rows = np.vstack([self._kernel.rows([]), *(source.rows for source in self._sources)])
        failing = [source for source in self._sources if source.success]
        of_performance, w = trend_of([source.performance for source in self._sources if source.performance], rows)
        of_success, v = trend_of([source.success for source in failing], rows, [source.share for source in failing])
        first, second, end = self._kernel.width + np.cumsum([0, len(v), len(w)])
        self._success = GaussianProcess(self._kernel, slice(first, second), v)
        self._performance = GaussianProcess(self._kernel, slice(second, end), w, 0 if self._described else None)
        self._programs = Programs(self.space, self._described, self._elsewhere) if self._described else None
        of_programs = [SOURCE_TRIALS**0.5] * (1 if self._elsewhere is None else 2)
        trends = slice(second, end + len(of_programs))
        self._with_programs = GaussianProcess(self._kernel, trends, [*w, *of_programs], 1 / 3)
        self._alone = GaussianProcess(self._kernel), GaussianProcess(self._kernel)  # the two, without sources
        self._trends = of_success, of_performance
        self._pool = Pool(self.space, self._rows)
        self._trial_rows = {}  # point -> row; a proposal wants those of all trials again

    def _rows(self, points):
        """A row for each point, levels and trends."""
        levels = self._kernel.rows(points)
        return np.hstack([levels, *(trend(levels) for trend in self._trends)])

    def _rows_of_trials(self, points):
        new = [point for point in points if point not in self._trial_rows]
        self._trial_rows.update(zip(new, self._rows(new)))
        return np.array([self._trial_rows[point] for point in points]) if points else self._rows([])

    def _propose(self):
        if self._elsewhere is not None:
            self.check_described()
        with _one_thread():
            try:
                return self._by_model() or self._random_unseen()
            except LinAlgError:
                return self._random_unseen()

    def _by_model(self):
        fitness = {point: value for point, value in self.results.items() if value is not None}
        alone = self._sources and len(self._seen) % ALONE_EVERY == ALONE_EVERY - 1
        of_performance, of_success = self._alone if alone else (self._performance, self._success)
        success = self._outcomes(of_success, alone)
        first = self._blind if self._elsewhere is None else 2 * self.initial
        blind = not self._sources and (len(self._seen) < first or (len(fitness) < 2 and not success))
        # What the model without programs likes are then candidates only, of which with many trials few are described.
        part = share(len(self._seen)) if self._programs else 1.0
        if not blind or not self._pool.points:
            self._pool.widen(self.rng, part)
        if blind:
            return self._most_promising() or self._most_telling()
        lone = set(fitness) if len(fitness) == 1 else set()  # its score is 0 and says nothing: it counts as running
        measured = [point for point in fitness if point not in lone]
        running = sorted((self._seen - self.results.keys()) | lone, key=repr)
        scores = performance_scores(np.array([fitness[point] for point in measured], dtype=float))
        performance = of_performance.posterior(self._rows_of_trials(measured), scores, self._rows_of_trials(running))
        acquisition = expected_gain(performance, success, self.failure_weight)
        done = self._seen | self._programs.twins if self._programs else self._seen
        found = maximise(acquisition, self._pool, fitness, done, self.offspring, self.rng, part)
        if self._programs is None or alone:
            return next(iter(found), None)
        return self._by_programs(measured, scores, running, found, done, acquisition, success)

    def _by_programs(self, measured, scores, running, found, done, acquisition, success):
        """The best of the candidates whose programs are known, by a process with one more trend."""
        programs = self._programs
        known = set(programs.known([*measured, *running]))
        built = np.array([point in known for point in measured], dtype=bool)
        measured, scores = [point for point in measured if point in known], scores[built]
        programs.learn(measured, scores)
        candidates = programs.candidates(
            found, lambda points: acquisition(self._rows(points)), self._pool.points, done, self.rng
        )
        if not candidates:
            return next(iter(found), None)
        running = [point for point in running if point in known]
        rows = [self._rows_with_programs(points) for points in (measured, running, candidates)]
        performance = self._with_programs.posterior(rows[0], scores, rows[1])
        values = expected_gain(performance, success, self.failure_weight)(rows[2])
        chosen = programs.choose(candidates, values, self._seen)
        return chosen or next((point for point in found if point not in programs.twins), None)

    def _rows_with_programs(self, points):
        """Rows of points whose programs are known: levels, trends of performance, and those of the program."""
        trends = self._programs.trends(points) / SOURCE_TRIALS**0.5
        return np.hstack([self._rows_of_trials(points), trends]).astype(np.float32)

    def _most_promising(self):
        """The best of the pool's first configurations by what was measured of programs elsewhere, unseen; None where there is none."""
        promising = self._programs.promising(self._pool.points) if self._programs else []
        return next((point for point in promising if point not in self._seen), None)

    def _most_telling(self):
        """The unseen configuration of the pool that tells most about the rest of it, or None where there is none."""
        points, levels = self._pool.points, self._pool.rows[:, : self._kernel.width]
        seen = self._kernel.rows(sorted(self._seen, key=repr))
        reductions = GaussianProcess(self._kernel).posterior(levels[:0], np.zeros(0), seen).reductions(levels)
        order = np.argsort(-reductions, kind="stable")
        return next((points[i] for i in order.tolist() if points[i] not in self._seen), None)

    def _outcomes(self, process, alone):
        """(Posterior of success, its zero, its unit); None where nothing has failed, here or, unless alone, elsewhere."""
        outcomes = np.array([value is not None for value in self.results.values()], dtype=bool)
        if not self.failure_weight or (outcomes.all() and (alone or not any(source.success for source in self._sources))):
            return None
        zero, unit = success_scale(outcomes)
        rows = self._rows_of_trials(list(self.results))
        return process.posterior(rows, (outcomes - zero) / unit, rows[:0]), zero, unit


def _one_thread():
    """A context in which NumPy takes one thread: more would fight with the trials for the cores."""
    return _threadpools().limit(limits=1, user_api="blas")


@functools.cache  # finding the libraries takes milliseconds
def _threadpools():
    return ThreadpoolController()
