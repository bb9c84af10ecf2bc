"""G-BFS: greedy best-first search (Zhang, Cheng, Zang, Park: arXiv 1909.10616; patent US 11842178)."""

import heapq
from collections import deque

from .base import Search, check_integer


class GBFS(Search):
    """G-BFS: from the best configuration not expanded yet, measure a few of its neighbours at random.

    The search starts with the configuration without multi-level tiling (the nearest one that satisfies the constraints). It
    keeps a queue of measured configurations, the fittest first; the first one is taken off and ``num_samples`` of its
    neighbours are drawn, of which those not seen before are measured and queued in their turn.

    Beyond the paper, which has powers of two and matrix multiplication: any space, with OpEvo's adjacency, one parameter moved
    at a time. The paper's full text was not at hand: this follows its description in OpEvo's paper, the patent's claims and
    NNI's public example. A failed trial is not queued. With trials side by side the queue may be empty while results are
    outstanding; then the oldest configuration still being measured is expanded, which told in turn is what would come next.
    Where nothing is left to expand, a random configuration takes its place.

    Parameters
    ----------
    num_samples
        rho, neighbours drawn per expansion; 5 in the experiments (OpEvo, appendix B). As many as there are neighbours makes it
        plain best-first search.

    >>> from nni_tensor_tuners import SearchSpace, create_search
    >>> space = SearchSpace.from_json({"X": {"_type": "factor", "_value": [1024, 4]}})
    >>> search = create_search("GBFS", space, seed=0)
    >>> search.ask(1)
    [{'X': [1024, 1, 1, 1]}]
    """

    def __init__(self, space, seed=0, num_samples=5):
        super().__init__(space, seed)
        check_integer("num_samples", num_samples)
        self.num_samples = num_samples
        self._queue = []  # (-fitness, age, point), a heap
        self._age = 0
        self._measuring = deque()  # points asked, oldest first; those told meanwhile are skipped
        self._expanded = set()
        self._drawn = []  # neighbours to propose

    def _propose(self):
        point = self._next_point()
        if point is not None:
            self._measuring.append(point)
        return point

    def _next_point(self):
        if not self._seen:
            return self.space.starting_point(self.rng)
        while True:
            while self._drawn:
                if (point := self._drawn.pop()) not in self._seen:
                    return point
            state = self._next_state()
            if state is None:
                return self._random_unseen()
            self._expanded.add(state)
            neighbours = self.space.neighbouring_points(state)
            self._drawn = self.rng.sample(neighbours, min(self.num_samples, len(neighbours)))

    def _next_state(self):
        """The state to expand next, or None."""
        while self._queue:
            loss, _, point = heapq.heappop(self._queue)
            if point not in self._expanded and self.results[point] == -loss:  # else told again since
                return point
        while self._measuring:
            point = self._measuring.popleft()
            if point not in self._expanded and point not in self.results:
                return point
        return None

    def _learn(self, point, fitness):
        self._age += 1
        heapq.heappush(self._queue, (-fitness, self._age, point))
