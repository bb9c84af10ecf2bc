"""How much of a space its constraints leave, and what each of them takes."""

import random

from .search_space import SearchSpace

# Spaces up to this size are counted, larger ones sampled.
COUNTED, SAMPLED = 1_000_000, 20_000


def analyse(space, seed=0, progress=lambda done, total: None):
    """Count, or estimate, the configurations that satisfy each constraint, and all of them.

    Parameters
    ----------
    space
        A `SearchSpace`.
    seed
        Of the sample.
    progress
        Called with the number of configurations looked at, and their total.

    Returns
    -------
    dict
        ``size`` (configurations before constraints), ``looked_at`` (all of them, or a sample by `SearchSpace.drawn`), ``exact``
        (whether all), ``legal`` (of those looked at, how many satisfy every constraint), ``constraints`` (text -> how
        many satisfy it by itself).
    """
    exact, rng = space.size <= COUNTED, random.Random(seed)
    if exact:
        points = SearchSpace(space.parameters).points(rng)
    else:
        points = (space.drawn(rng) for _ in range(SAMPLED))
    total = space.size if exact else SAMPLED
    counts, legal = [0] * len(space.constraints), 0
    for done, point in enumerate(points, 1):
        values = space.values(point)
        held = [constraint.holds(values) for constraint in space.constraints]
        counts = [count + holds for count, holds in zip(counts, held)]
        legal += all(held)
        if done % 5000 == 0:
            progress(done, total)
    texts = [constraint.text for constraint in space.constraints]
    return {"size": space.size, "looked_at": total, "exact": exact, "legal": legal, "constraints": dict(zip(texts, counts))}
