"""Genetic: the genetic algorithm of AutoTVM, the baseline of the AutoTVM and NoSE papers."""

import heapq

from .base import Search, check_integer, check_number
from .variation import offspring


class Genetic(Search):
    """A genetic algorithm with the operators of AutoTVM's tuner.

    A generation of ``population_size`` random configurations comes first. The next one is bred from the one before and the
    ``elite_size`` best of all: two different parents drawn in proportion to fitness, single-point crossover between parameters,
    and every parameter replaced by a random other value with probability ``mutation_rate``; a child seen before is mutated
    again.

    As in `OpEvo`, a generation is bred as soon as the one before has been handed out, and failed trials are never parents. The
    generation before is the last ``population_size`` successful results, so that one still being measured is not lost.

    Parameters
    ----------
    population_size
        AutoTVM has 100, which is half of a budget of 200 trials before the first child is bred; the default 16 is for budgets
        of some hundreds.
    elite_size
        How many of the best of all are parents of every generation; 3 in AutoTVM.
    mutation_rate
        0.1 in AutoTVM.

    >>> from nni_tensor_tuners import SearchSpace, create_search
    >>> space = SearchSpace.from_json({"unroll": {"_type": "discrete", "_value": [0, 64, 512]}})
    >>> sorted(config["unroll"] for config in create_search("Genetic", space).ask(3))
    [0, 64, 512]
    """

    def __init__(self, space, seed=0, population_size=16, elite_size=3, mutation_rate=0.1):
        super().__init__(space, seed)
        check_integer("population_size", population_size, 2)
        check_integer("elite_size", elite_size, 0)
        check_number("mutation_rate", mutation_rate, 0, 1)
        self.population_size = population_size
        self.elite_size = elite_size
        self.mutation_rate = mutation_rate
        self._successes = {}  # point -> fitness, in the order told
        self._children = []

    def _propose(self):
        if (point := self._pop_unseen(self._children)) is not None:
            return point
        if len(self._seen) < self.population_size or len(self._successes) < 2:
            return self._random_unseen()
        self._children = self._breed()
        return self._children.pop(0) if self._children else self._random_unseen()

    def _learn(self, point, fitness):
        self._successes[point] = fitness

    def _breed(self):
        parents = dict(list(self._successes.items())[-self.population_size :])
        parents.update(heapq.nlargest(self.elite_size, self._successes.items(), key=lambda item: item[1]))
        return offspring(self.space, parents, self.mutation_rate, self.population_size, self._seen, self.rng)
