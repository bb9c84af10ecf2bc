"""What the programs of configurations are like, for the models that see it."""

import os
from concurrent.futures import ThreadPoolExecutor

# NumPy is imported inside functions: whoever makes a search need not load it.

# TVM makes programs, and XGBoost trees, without Python's lock; what Python does itself leaves no work for more threads.
THREADS = 4


def side_by_side(function, items):
    """What a function returns for each of some items, a list; threads call it, several at a time."""
    threads = min(len(items), len(os.sched_getaffinity(0)), THREADS)
    if threads < 2:
        return list(map(function, items))
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(function, items))


class Described:
    """Features of a space's programs, made as they are asked for, several at a time, and kept.

    Parameters
    ----------
    space
        A `SearchSpace`.
    describe
        Configuration -> features of its program, of one shape; None where it cannot be built. Threads call it.
    settle
        Configuration -> the one that is built for it, None for none (`Task.settler`); left out, all are built themselves.
    """

    def __init__(self, space, describe, settle=None):
        self._space, self._describe, self._settle = space, describe, settle or (lambda config: config)
        self._features = {}  # point -> its features, or None

    def known(self, points):
        """Those of some points whose programs can be built, a list."""
        new = [point for point in dict.fromkeys(points) if point not in self._features]
        self._features.update(zip(new, side_by_side(self._made, new)))
        return [point for point in points if self._features[point] is not None]

    def rows(self, points):
        """The features of `known` points, an array with a row for each."""
        import numpy as np

        return np.array([self._features[point] for point in points])

    def built(self, point):
        """What is built for a `known` point: another one, whose program is the same, or the point itself."""
        built = self._settle(self._space.config(point))
        if built is None:
            return point
        built = self._space.point(built)
        self._features[built] = self._features[point]
        return built

    def _made(self, point):
        return self._describe(self._space.config(point)) if self._space.is_legal(point) else None
