"""Permutation parameters: an order of distinct elements (loop order)."""

from itertools import combinations
from math import factorial

from .choice import Index
from .parameter import Axis, Parameter


class Permutation(Parameter):
    """All orders of ``elements``; two are adjacent if swapping two elements turns one into the other (OpEvo section 3).

    >>> Permutation("order", ["i", "j", "k"]).size
    6
    """

    def __init__(self, name, elements):
        self.name = name
        if not isinstance(elements, list) or not elements:
            raise self.error(f"a permutation needs a non-empty list of elements, got {elements!r}")
        self.index = Index(self, elements)
        self.size = factorial(len(elements))
        self._swaps = list(combinations(range(len(elements)), 2))
        self.moves = len(self._swaps)

    def sample(self, rng):
        order = list(range(len(self.index.values)))
        for last in range(len(order) - 1, 0, -1):  # Fisher-Yates
            other = int(rng.random() * (last + 1))
            order[last], order[other] = order[other], order[last]
        return tuple(order)

    def unrank(self, index):
        left = list(range(len(self.index.values)))
        order = []
        while left:
            position, index = divmod(index, factorial(len(left) - 1))
            order.append(left.pop(position))
        return tuple(order)

    def origin(self):
        return tuple(range(len(self.index.values)))

    def move(self, vertex, index):
        i, j = self._swaps[index]
        order = list(vertex)
        order[i], order[j] = order[j], order[i]
        return tuple(order)

    def features(self, vertex):
        positions = [0.0] * len(vertex)
        for position, element in enumerate(vertex, 1):
            positions[element] = float(position)
        return positions

    def encode(self, value):
        if not isinstance(value, (list, tuple)):
            raise self.error(f"expected a list, got {value!r}")
        vertex = tuple(self.index.of(element) for element in value)
        if sorted(vertex) != list(range(len(self.index.values))):
            raise self.error(f"expected each of {self.index.values} exactly once, got {value!r}")
        return vertex

    def decode(self, vertex):
        return [self.index.values[i] for i in vertex]

    def axes(self, divisibility=True):
        """The position of every element, a path."""
        elements = range(len(self.index.values))
        return [Axis(len(elements), lambda order, element=element: order.index(element)) for element in elements]

    def to_json(self):
        return {"_type": "permutation", "_value": self.index.values}
