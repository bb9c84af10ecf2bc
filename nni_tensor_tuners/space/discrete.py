"""Discrete parameters: a finite set of numbers in their natural order."""

import math

from .parameter import Axis, Parameter


class Discrete(Parameter):
    """Finitely many numbers; each is adjacent to the next smaller and the next larger one (OpEvo section 3).

    >>> Discrete("unroll", [512, 0, 64]).neighbours(0)
    [64]
    """

    moves = 2  # down and up

    def __init__(self, name, numbers):
        self.name = name
        if not isinstance(numbers, list) or not numbers:
            raise self.error(f"a discrete parameter needs a non-empty list of numbers, got {numbers!r}")
        for number in numbers:
            if isinstance(number, bool) or not isinstance(number, (int, float)) or not math.isfinite(number):
                raise self.error(f"a discrete parameter's values must be finite numbers, got {number!r}")
        if len(set(numbers)) < len(numbers):
            raise self.error(f"duplicate values in {numbers}")
        self.numbers = sorted(numbers)
        self.size = len(numbers)
        self._rank = {number: rank for rank, number in enumerate(self.numbers)}

    def sample(self, rng):
        return self.numbers[int(rng.random() * self.size)]

    def unrank(self, index):
        return self.numbers[index]

    def origin(self):
        return self.numbers[0]

    def move(self, vertex, index):
        rank = self._rank[vertex] + (1 if index else -1)
        return self.numbers[rank] if 0 <= rank < self.size else None

    def step(self, vertex, rng):  # as the base class does, without a list of the neighbours: searches walk thousands of times
        if self.size == 1:
            return vertex
        rank, up = self._rank[vertex], rng.random() >= 0.5
        if rank in (0, self.size - 1):
            up = rank == 0
        return self.numbers[rank + (1 if up else -1)]

    def features(self, vertex):
        return [float(vertex)]

    def features_of_value(self, value):
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise self.error(f"expected a number, got {value!r}")
        return [float(value)]  # also of a number that this space does not list

    def encode(self, value):
        if isinstance(value, bool) or not isinstance(value, (int, float)) or value not in self._rank:
            raise self.error(f"expected one of {self.numbers}, got {value!r}")
        return self.numbers[self._rank[value]]  # 64.0 that came over JSON is the 64 of the space

    def decode(self, vertex):
        return vertex

    def axes(self, divisibility=True):
        """The path of the numbers, and that of the powers of two that divide them: 96 is near 112, and also near 32."""
        axes = [Axis(self.size, self._rank.__getitem__, smooth=True)]
        powers = _powers_of_two(self.numbers) if divisibility else {}
        if powers:
            order = {power: i for i, power in enumerate(sorted(set(powers.values())))}
            axes.append(Axis(len(order), lambda number: order[powers[number]], smooth=True))
        return axes

    def nearest(self, value):
        """The nearest number by ratio."""
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise self.error(f"expected a number, got {value!r}")
        return min(self.numbers, key=lambda number: abs(_log(number) - _log(value)))

    def to_json(self):
        return {"_type": "discrete", "_value": self.numbers}


def _log(number):
    return math.copysign(math.log1p(abs(number)), number)


def _powers_of_two(numbers):
    """number -> the largest power of two that divides it; empty where this says nothing that the order does not."""
    if not all(isinstance(number, int) and number > 0 for number in numbers):
        return {}
    powers = {number: number & -number for number in numbers}
    one_odd_part = len({number // power for number, power in powers.items()}) == 1
    return {} if one_odd_part or len(set(powers.values())) == 1 else powers
