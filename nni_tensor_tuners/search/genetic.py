"""Genetic: the genetic algorithm that TVM has beside AutoTVM, a baseline of the AutoTVM and NoSE papers."""

import heapq

from .base import Search, check_integer, check_number
from .variation import offspring


class Genetic(Search):
    """A genetic algorithm with the operators of TVM's ``GATuner``.

    A generation of ``population_size`` random configurations comes first. The next one is bred from the one before and the
    ``elite_size`` best of all: two different parents drawn in proportion to fitness, single-point crossover between parameters,
    and every parameter replaced by a random other value with probability ``mutation_rate``.

    Where it departs from TVM's:

    - The population is 16 by default, not 100.
    - A generation is bred as soon as the one before has been handed out, from the results there are by then. The generation
      before is the last ``population_size`` successful results, so that one still being measured is not lost.
    - Failed trials are never parents, also where all have failed; TVM's have fitness 0.
    - A child that breaks a constraint or was seen before is bred anew, and given up after 200 attempts. TVM has no constraints,
      and gives single parameters of a child seen before random values until it is new.
    - A parameter that mutates changes; TVM draws from all its values, the old one among them.

    Parameters
    ----------
    population_size
        100 in TVM, which is half of a budget of 200 trials before the first child is bred; 16 is for budgets of some hundreds.
    elite_size
        How many of the best of all are parents of every generation; 3 in TVM.
    mutation_rate
        Of every parameter; 0.1 in TVM.

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
