"""The unseen configurations with the highest acquisition: among random ones, offspring of the best, and up along the edges."""

import functools
from itertools import islice
from math import ceil

import numpy as np

from ..variation import complete

# Random configurations that candidates are drawn from: so many at first, so many more (walked away from old ones) each time.
FIRST_POOL, MORE_POOL, MAX_POOL = 512, 100, 3000
# Where legal ones are too rare to be drawn, so many from each listing.
LISTED = 16
# Offspring are walked from the best so many configurations, with this q.
PARENTS, WALK_Q = 8, 0.3
# Hill climbing over the acquisition: from the best so many candidates, for at most so many rounds.
CLIMBERS, ROUNDS = 8, 4
# Beyond this many trials n a share of them is scored: (this / n)^2, as what one costs grows with n^2.
FULL_TRIALS = 200


class Pool:
    """Random legal points of a space and their rows, kept from one proposal to the next; ``to_rows`` makes rows of points."""

    def __init__(self, space, to_rows):
        self.space, self.to_rows = space, to_rows
        self.points, self.rows = [], to_rows([])
        self._has = set()  # the points
        # One proposal's climbers are mostly the next one's too, and asking what is legal takes longer than scoring it.
        self.neighbours = functools.lru_cache(256)(space.neighbouring_points)

    def widen(self, rng, part=1.0):
        """Add points, or that part of as many; the oldest leave when it is full."""
        if self.points:
            walked = (self.space.walk_point(rng.choice(self.points), 0.5, rng) for _ in range(ceil(MORE_POOL * part)))
            drawn = [point for point in walked if self.space.is_legal(point)]
        else:
            drawn = list(islice(iter(lambda: self.space.random_point(rng), None), FIRST_POOL))
            if len(drawn) < FIRST_POOL:
                for _ in range(FIRST_POOL // LISTED):  # a listing starts anywhere, but goes on nearby
                    drawn += islice(self.space.points(rng), LISTED)
        new = [point for point in dict.fromkeys(drawn) if point not in self._has]
        self._has.update(new)
        self._has.difference_update([*self.points, *new][:-MAX_POOL])
        self.points = [*self.points, *new][-MAX_POOL:]
        self.rows = np.vstack([self.rows, self.to_rows(new)])[-MAX_POOL:]


def maximise(acquisition, pool, fitness, seen, offspring, rng, part=1.0):
    """Legal points, not among ``seen``: those with the highest acquisition that could be found, the highest first.

    Parameters
    ----------
    acquisition
        Function of rows.
    fitness
        point -> fitness of the trials that succeeded.
    offspring
        How many children of the best of these are among the candidates, fewer beyond FULL_TRIALS.
    part
        Of CLIMBERS.
    """
    climbing = ceil(CLIMBERS * part)
    found = {}

    def consider(points, rows):
        if points:
            values = acquisition(rows)
            best = [i for i in np.argsort(-values, kind="stable").tolist() if points[i] not in seen]
            found.update((points[i], values[i]) for i in best[:CLIMBERS] if not np.isnan(values[i]))

    newest = int(MAX_POOL * share(len(seen)))
    consider(pool.points[-newest:], pool.rows[-newest:])
    children = breed(pool.space, fitness, seen, int(offspring * share(len(seen))), rng)
    consider(children, pool.to_rows(children))
    climbed = set()
    for _ in range(ROUNDS if found else 0):
        before = max(found.values())
        climbers = [point for point in sorted(found, key=found.get, reverse=True)[:climbing] if point not in climbed]
        climbed.update(climbers)
        around = list(dict.fromkeys(q for p in climbers for q in pool.neighbours(p) if q not in found))
        consider(around, pool.to_rows(around))
        if max(found.values()) == before:
            break
    return sorted(found, key=found.get, reverse=True)


def share(trials):
    """Of the candidates, with so many trials."""
    return min(1.0, (FULL_TRIALS / max(1, trials)) ** 2)


def breed(space, fitness, seen, count, rng):
    """Unseen legal offspring of the best configurations: half of them by uniform crossover, all by q-random walks."""
    parents = sorted(fitness, key=fitness.get, reverse=True)[:PARENTS]
    children = {}  # a dict for its order
    for _ in range(count if parents else 0):
        child = parents[int(len(parents) * rng.random() ** 2)]
        if rng.random() < 0.5:
            other = rng.choice(parents)
            child = complete(space, tuple(rng.choice(pair) for pair in zip(child, other)), [child, other], [1, 1], rng)
        child = space.walk_point(child, WALK_Q, rng)
        if child not in seen and child not in children and space.is_legal(child):
            children[child] = None
    return list(children)
