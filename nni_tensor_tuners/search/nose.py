"""NoSE: an evolutionary algorithm with a k-nearest-neighbour surrogate (Gatopoulos, Lepert, Wiggers, Mariani, Tomczak)."""

import heapq

import numpy as np

from .base import Search, check_integer, check_number
from .variation import offspring


class NoSE(Search):
    """NoSE, section III: only the offspring that a k-nearest-neighbour regression thinks best are measured.

    The first ``population_size`` (N) configurations are random. In each generation ``offspring_ratio`` N (M) children are made
    of two parents drawn in proportion to fitness, by single-point crossover between parameters and uniform mutation. Their
    fitness is estimated by the k nearest measured configurations in Canberra distance, and the best ``elite_ratio`` N (E) of
    them are measured. The population is the N best of all.

    Where it departs from the paper:

    - The population is 16 by default, not 100.
    - A generation is bred as soon as the one before has been handed out, from the results there are by then, so that trials can
      run side by side; told in turn, it is the paper's loop.
    - A failed trial counts with fitness 0 in the estimate, as in the paper, or with the lowest one told, if that is negative.
      It is never a parent: in the paper it is one with probability 0, unless all have failed.
    - The two parents of a child differ.
    - A child that breaks a constraint or was seen before is bred anew, and given up after 200 attempts; a random configuration
      takes the place of a generation without children. The paper measures what breaks a constraint, and says nothing of
      children seen before.
    - Coordinates are `Parameter.features`: a factor parameter has one for every factor, a choice one for every element, of
      which the chosen one is 1. The paper says no more than that configurations are vectors of discrete values. Where both are
      0, the term of equation 4 is 0.

    Parameters
    ----------
    population_size
        N; 100 in the paper, which tunes for an hour and some thousands of trials. That is half of a budget of 200 before
        the first child is bred; 16 is for budgets of some hundreds.
    offspring_ratio
        M / N; 1.5 in the paper.
    elite_ratio
        E / N, at most M / N; 0.3 in the paper.
    neighbours
        k; 9 in the paper.
    mutation_rate
        p; 0.3 in the paper.

    >>> from nni_tensor_tuners import SearchSpace, create_search
    >>> space = SearchSpace.from_json({"unroll": {"_type": "discrete", "_value": [0, 64, 512]}})
    >>> sorted(config["unroll"] for config in create_search("NoSE", space).ask(3))
    [0, 64, 512]
    """

    def __init__(
        self, space, seed=0, population_size=16, offspring_ratio=1.5, elite_ratio=0.3, neighbours=9, mutation_rate=0.3
    ):
        super().__init__(space, seed)
        check_integer("population_size", population_size, 2)
        check_number("offspring_ratio", offspring_ratio, 0.01, 100)
        check_number("elite_ratio", elite_ratio, 0.01, offspring_ratio)
        check_integer("neighbours", neighbours)
        check_number("mutation_rate", mutation_rate, 0, 1)
        self.population_size = population_size
        self.offspring_size = max(1, round(offspring_ratio * population_size))
        self.elite_size = max(1, round(elite_ratio * population_size))
        self.neighbours = neighbours
        self.mutation_rate = mutation_rate
        self._elite = []

    def _propose(self):
        if (point := self._pop_unseen(self._elite)) is not None:
            return point
        if len(self._seen) >= self.population_size:
            self._elite = self._breed()
        return self._elite.pop(0) if self._elite else self._random_unseen()

    def _breed(self):
        """The E most promising of M children, best first."""
        measured = ((point, fitness) for point, fitness in self.results.items() if fitness is not None)
        population = dict(heapq.nlargest(self.population_size, measured, key=lambda item: item[1]))
        if len(population) < 2:
            return []
        children = offspring(self.space, population, self.mutation_rate, self.offspring_size, self._seen, self.rng)
        if not children:
            return []
        known = np.array([self.space.features(point) for point in self.results])
        failed = self.worst
        values = np.array([failed if fitness is None else fitness for fitness in self.results.values()])
        estimates = knn_estimate(np.array([self.space.features(point) for point in children]), known, values, self.neighbours)
        ranked = np.argsort(-estimates, kind="stable")[: self.elite_size]
        return [children[i] for i in ranked]


def knn_estimate(queries, known, values, k):
    """Distance-weighted k-nearest-neighbour regression (equations 1 to 3).

    Parameters
    ----------
    queries, known
        Coordinates, of shape (queries, d) and (known, d).
    values
        Of shape (known,).
    k
        How many neighbours count; all, where there are fewer.

    Returns
    -------
    Estimates of shape (queries,). A query at distance 0 of a known point has that point's value.
    """
    distances = np.stack([canberra(query, known) for query in queries])
    nearest = np.argsort(distances, axis=1, kind="stable")[:, :k]  # Equation (2)
    weights = 1 / np.maximum(np.take_along_axis(distances, nearest, axis=1), 1e-12)  # Equation (1)
    return (weights * values[nearest]).sum(axis=1) / weights.sum(axis=1)  # Equation (3)


def canberra(x, z):
    """Canberra distance (equation 4) of ``x``, of shape (d,), to each row of ``z``; coordinates that are both 0 count 0."""
    total = np.abs(x) + np.abs(z)
    return (np.abs(x - z) / np.where(total == 0, 1.0, total)).sum(axis=1)
