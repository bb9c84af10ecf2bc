"""OpEvo: evolution with a topology-aware mutation (Gao, Cui, Zhang, Yang: arXiv 2006.05664)."""

import heapq
from bisect import insort

from .base import Search, check_integer
from .variation import complete, proportional

# How often a child that breaks a constraint or was seen before is drawn again, before a random configuration takes its place.
MAX_ATTEMPTS = 200


class OpEvo(Search):
    """OpEvo, Algorithm 1.

    The first ``parents_size`` configurations are random (those of a warm start count). From then on each generation recombines
    the best ``parents_size`` configurations into ``offspring_size`` children, parameter by parameter with probability
    proportional to fitness, and mutates every parameter of every child by a q-random walk.

    What the paper leaves open:

    - A generation is bred as soon as the one before has been handed out, from the results there are by then, so that trials can
      run side by side; told in turn, it is the paper's synchronous loop.
    - Failed trials are never parents, which is the limit of the paper's fitness zero. A fitness below zero counts as zero in
      equation 2, and all count the same where none is above.
    - A child that breaks a constraint is bred again, one seen before is mutated again (section 4.4), 200 times at most; then
      the generation ends, and a random configuration takes the place of one without children.

    Parameters
    ----------
    parents_size
        lambda, how many of the best are parents; 8 in the paper. A large one is more diverse, a small one converges sooner.
    offspring_size
        rho, children in a generation; 8 in the paper.
    mutate_rate
        q, the probability of each further step of the walk, 0 < q < 1; 0.5 in the paper. Larger explores more.

    >>> from nni_tensor_tuners import SearchSpace, create_search
    >>> space = SearchSpace.from_json({"X": {"_type": "factor", "_value": [1024, 4]}})
    >>> search = create_search("OpEvo", space, seed=1)
    >>> for _ in range(60):
    ...     for config in search.ask(1):
    ...         search.tell(config, fitness=1 / (1 + abs(config["X"][3] - 32)))
    >>> max(f for f in search.results.values())
    1.0
    """

    def __init__(self, space, seed=0, parents_size=8, offspring_size=8, mutate_rate=0.5):
        super().__init__(space, seed)
        check_integer("parents_size", parents_size)
        check_integer("offspring_size", offspring_size)
        if isinstance(mutate_rate, bool) or not isinstance(mutate_rate, (int, float)) or not 0 < mutate_rate < 1:
            raise ValueError(f"mutate_rate must be a number between 0 and 1, both excluded, got {mutate_rate!r}")
        self.parents_size = parents_size
        self.offspring_size = offspring_size
        self.mutate_rate = mutate_rate
        self._parents = []  # (-fitness, age, point) of the best parents_size, best first
        self._age = {}
        self._children = []  # bred, not handed out yet

    @property
    def parents(self):
        """The current parents as (configuration, fitness), best first."""
        return [(self.space.config(point), -loss) for loss, _, point in self._parents]

    def _propose(self):
        if (point := self._pop_unseen(self._children)) is not None:
            return point
        if len(self._seen) < self.parents_size or not self._parents:
            return self._random_unseen()
        self._children = self._breed()
        return self._children.pop(0) if self._children else self._random_unseen()

    def _learn(self, point, fitness):
        known = point in self._age
        age = self._age.setdefault(point, len(self._age))
        if known:  # told again: rank everything anew, since the parents may have to let it go
            ranked = ((-f, self._age[p], p) for p, f in self.results.items() if f is not None)
            self._parents = heapq.nsmallest(self.parents_size, ranked)
        else:
            insort(self._parents, (-fitness, age, point))
            del self._parents[self.parents_size :]

    def _breed(self):
        points = [point for _, _, point in self._parents]
        weights = proportional([-loss for loss, _, _ in self._parents])  # Equation (2)
        children = []
        for _ in range(self.offspring_size):
            child = self._child(points, weights, children)
            if child is None:
                break  # the neighbourhood is used up; the caller falls back on random configurations
            children.append(child)
        return children

    def _child(self, parents, weights, siblings):
        """One recombined and mutated child, or None if all attempts were illegal or seen."""
        child = None
        for _ in range(MAX_ATTEMPTS):
            if child is None:  # Equation (2): each parameter from a parent of its own
                donors = self.rng.choices(parents, weights, k=len(self.space.parameters))
                recombined = tuple(donor[i] for i, donor in enumerate(donors))
                recombined = complete(self.space, recombined, parents, weights, self.rng)
                mutated = self.space.walk_point(recombined, self.mutate_rate, self.rng)
            else:  # section 4.4: a child already sampled is mutated again
                mutated = self.space.walk_point(child, self.mutate_rate, self.rng)
            if not self.space.is_legal(mutated):
                continue
            if mutated not in self._seen and mutated not in siblings:
                return mutated
            child = mutated
        return None
