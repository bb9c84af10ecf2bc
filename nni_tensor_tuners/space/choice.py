"""Choice parameters: finitely many elements of any kind, none nearer to another than the rest."""

import json

from .parameter import Axis, Parameter


class Choice(Parameter):
    """Finitely many JSON values, each adjacent to every other (OpEvo section 3, categorical parameter).

    >>> Choice("explicit", [0, 1]).neighbours(0)
    [1]
    """

    def __init__(self, name, values):
        self.name = name
        if not isinstance(values, list) or not values:
            raise self.error(f"a choice needs a non-empty list of values, got {values!r}")
        self.index = Index(self, values)
        self.size = self.moves = len(values)

    def sample(self, rng):
        return int(rng.random() * self.size)

    def unrank(self, index):
        return index

    def origin(self):
        return 0

    def move(self, vertex, index):
        return index if index != vertex else None

    def features(self, vertex):
        return [float(number == vertex) for number in range(self.size)]

    def step(self, vertex, rng):
        if self.size == 1:
            return vertex
        other = int(rng.random() * (self.size - 1))
        return other + (other >= vertex)

    def encode(self, value):
        return self.index.of(value)

    def decode(self, vertex):
        return self.index.values[vertex]

    def axes(self, divisibility=True):
        return [Axis(self.size, lambda vertex: vertex, complete=True)]

    def to_json(self):
        return {"_type": "choice", "_value": self.index.values}


class Index:
    """Numbers distinct JSON values (which need not be hashable) from 0, for the parameter that errors are to name."""

    def __init__(self, parameter, values):
        self.parameter = parameter
        self.values = values
        self._number = {_key(value): number for number, value in enumerate(values)}
        if len(self._number) < len(values):
            raise parameter.error(f"duplicate values in {values}")

    def of(self, value):
        """The number of ``value``; ValueError if it is none of the values."""
        number = self._number.get(_key(value))
        if number is None:
            raise self.parameter.error(f"expected one of {self.values}, got {value!r}")
        return number


def _key(value):
    # json.dumps tells 1 from true and "1"; a tuple and a list, which JSON does not tell apart, are the same value.
    try:
        return json.dumps(value, sort_keys=True)
    except TypeError:
        return repr(value)
