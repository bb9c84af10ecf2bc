"""What the evolutionary searches share: selection in proportion to fitness, crossover, mutation."""


def proportional(fitnesses):
    """Selection weights in proportion to fitness (a roulette wheel); equal ones where no fitness is positive.

    >>> proportional([3.0, 1.0, -2.0])
    [3.0, 1.0, 0.0]
    """
    weights = [max(fitness, 0.0) for fitness in fitnesses]
    return weights if sum(weights) > 0 else [1.0] * len(weights)


def two_parents(points, weights, rng):
    """Two different points, the second drawn from what the first leaves."""
    first = rng.choices(range(len(points)), weights)[0]
    others = [i for i in range(len(points)) if i != first]
    left = [weights[i] for i in others]
    second = rng.choices(others, left if sum(left) > 0 else None)[0]
    return points[first], points[second]


def single_point_crossover(a, b, rng):
    """The parameters of ``a`` up to a random cut, those of ``b`` from there on."""
    cut = int(rng.random() * len(a))
    return a[:cut] + b[cut:]


def uniform_mutation(space, point, rate, rng):
    """Every parameter, with probability ``rate``, replaced by another of its values, all equally likely."""
    return tuple(
        _another(parameter, vertex, rng) if parameter.size > 1 and rng.random() < rate else vertex
        for parameter, vertex in zip(space.parameters, point)
    )


def _another(parameter, vertex, rng):
    while (other := parameter.sample(rng)) == vertex:
        pass
    return other
