"""What the evolutionary searches share: selection in proportion to fitness, crossover, mutation."""

# How often a child that breaks a constraint or was seen before is bred anew, before it is given up.
MAX_ATTEMPTS = 200


def offspring(space, parents, mutation_rate, count, seen, rng):
    """Children of two parents each, drawn in proportion to fitness, by single-point crossover and uniform mutation.

    A child that breaks a constraint or was seen before is bred anew, from the choice of its parents on. Mutated again instead,
    it would drift away from them: each mutation keeps a parameter with probability 1 - ``mutation_rate``.

    Parameters
    ----------
    space
        A `SearchSpace`.
    parents
        point -> fitness, two at least.
    mutation_rate
        Of every parameter.
    count
        How many; fewer come where no legal one can be found.
    seen
        Points that are not wanted again.
    rng
        The search's generator.

    Returns
    -------
    list of points, legal and distinct
    """
    points, weights = list(parents), proportional(parents.values())
    children = {}  # a dict for its order
    for _ in range(count):
        for _ in range(MAX_ATTEMPTS):
            a, b = two_parents(points, weights, rng)
            crossed = complete(space, single_point_crossover(a, b, rng), [a, b], [1, 1], rng)
            child = uniform_mutation(space, crossed, mutation_rate, rng)
            if child not in seen and child not in children and space.is_legal(child):
                children[child] = None
                break
    return list(children)


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


def complete(space, child, parents, weights, rng):
    """A child of several parents with what its branches have: of a parent that has it, by weight, else drawn at random.

    Where there are no nested choices it is complete as it is, and costs no random number.
    """

    def inherited(i):
        having = [(parent[i], weight) for parent, weight in zip(parents, weights) if parent[i] is not None and weight > 0]
        return rng.choices(*zip(*having))[0] if having else space.parameters[i].sample(rng)

    return space.settled(child, inherited)


def single_point_crossover(a, b, rng):
    """The parameters of ``a`` up to a random cut, those of ``b`` from there on."""
    cut = int(rng.random() * len(a))
    return a[:cut] + b[cut:]


def uniform_mutation(space, point, rate, rng):
    """Every parameter, with probability ``rate``, replaced by another of its values, all equally likely.

    What another branch of a nested choice has of its own is drawn at random.
    """
    mutated = tuple(
        parameter.sample_other(vertex, rng) if parameter.size > 1 and rng.random() < rate else vertex
        for parameter, vertex in zip(space.parameters, point)
    )
    return space.drawn(rng, mutated)
