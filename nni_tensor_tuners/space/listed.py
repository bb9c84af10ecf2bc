"""Spaces whose legal configurations are known one by one."""

from .search_space import SearchSpace


class ListedSpace(SearchSpace):
    """A space whose legal configurations are listed, not described by constraints: a recording, another tuner's enumeration.

    Parameters
    ----------
    parameters
        As for `SearchSpace`.
    points
        The legal points; what is listed twice counts once.
    """

    def __init__(self, parameters, points):
        self._listed = list(dict.fromkeys(points))
        self._members = set(self._listed)
        super().__init__(parameters)

    def is_legal(self, point, changed=None):
        """Whether a point is listed."""
        return point in self._members

    def restricted(self, i, branch):
        space = super().restricted(i, branch)
        inside = [self.config(point) for point in self._listed if point[i] == branch]
        return ListedSpace(space.parameters, [space.point(config) for config in inside])

    def random_point(self, rng):
        """A uniformly random listed point, or None if there is none."""
        return self._listed[int(rng.random() * len(self._listed))] if self._listed else None

    def points(self, rng):
        """Every listed point once, in random order."""
        order = list(self._listed)
        rng.shuffle(order)
        return iter(order)


def by_values(values):
    """The NNI search-space JSON of a parameter of which only the values are known: numbers are discrete, others a choice."""
    numbers = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values)
    return {"_type": "discrete" if numbers else "choice", "_value": list(values)}
