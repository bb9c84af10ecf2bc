"""Factor parameters: a loop extent split into a fixed number of factors (matrix tiling)."""

import itertools
from math import comb, log, prod
from operator import mul

from .parameter import Axis, Parameter, is_integer


class Factor(Parameter):
    """All tuples of ``parts`` positive integers whose product is ``product`` (OpEvo section 3, first type).

    Two factorisations are adjacent if one prime factor, moved from one position to another, turns the one into the other.
    Each prime p with exponent e is distributed over the positions on its own, so the number of values is the product over
    primes of C(e + parts - 1, parts - 1), and nothing is ever enumerated to count, sample or walk.

    >>> Factor("X", 8, 3).size
    10
    """

    def __init__(self, name, product, parts):
        self.name = name
        if not is_integer(product) or product < 1:
            raise self.error(f"a factor's product must be an integer >= 1, got {product!r}")
        if not is_integer(parts) or parts < 1:
            raise self.error(f"a factor's number of parts must be an integer >= 1, got {parts!r}")
        self.product = product
        self.parts = parts
        self.exponents = prime_exponents(product)
        self._transfers = [(prime, i, j) for prime in self.exponents for i in range(parts) for j in range(parts) if i != j]
        self.moves = len(self._transfers)
        self.size = prod(comb(e + parts - 1, parts - 1) for e in self.exponents.values())

    def sample(self, rng):
        factors = [1] * self.parts
        for prime, exponent in self.exponents.items():
            for position, count in enumerate(_random_composition(exponent, self.parts, rng)):
                factors[position] *= prime**count
        return tuple(factors)

    def unrank(self, index):
        factors = [1] * self.parts
        for prime, exponent in self.exponents.items():
            index, rank = divmod(index, comb(exponent + self.parts - 1, self.parts - 1))
            for position, count in enumerate(_nth_composition(rank, exponent, self.parts)):
                factors[position] *= prime**count
        return tuple(factors)

    def origin(self):
        return (self.product, *[1] * (self.parts - 1))

    def move(self, vertex, index):
        prime, source, target = self._transfers[index]
        return _moved(vertex, prime, source, target) if vertex[source] % prime == 0 else None

    def features(self, vertex):
        return [float(factor) for factor in vertex]

    def tree_features(self, vertex):
        # The extents of the tiles: trees cannot multiply. The innermost one is a factor itself, the outermost always the same.
        extents = list(itertools.accumulate(vertex[:0:-1], mul))[1:]
        return [float(number) for number in (*vertex, *extents)]

    def features_of_value(self, value):
        if not isinstance(value, (list, tuple)) or len(value) != self.parts or not all(is_integer(f) and f >= 1 for f in value):
            raise self.error(f"expected {self.parts} factors, got {value!r}")
        return self.tree_features(tuple(value))  # of any product

    def step(self, vertex, rng):
        # Every (prime, source) has the same parts - 1 targets, so drawing them apart is uniform over the neighbours.
        if self.size == 1:
            return vertex
        movable = self._movable(vertex)
        prime, source = movable[int(rng.random() * len(movable))]
        target = int(rng.random() * (self.parts - 1))
        return _moved(vertex, prime, source, target + (target >= source))

    def _movable(self, vertex):
        return [(p, i) for p in self.exponents for i, factor in enumerate(vertex) if factor % p == 0]

    def encode(self, value):
        if not isinstance(value, (list, tuple)) or len(value) != self.parts:
            raise self.error(f"expected a list of {self.parts} factors, got {value!r}")
        if not all(is_integer(f) and f >= 1 for f in value) or prod(value) != self.product:
            raise self.error(f"expected positive integers whose product is {self.product}, got {value!r}")
        return tuple(value)

    def decode(self, vertex):
        return list(vertex)

    def axes(self, divisibility=True):
        """For every prime the tile extents, products of the innermost 1, 2, ... factors: each a path of exponents.

        Moving a prime between adjacent positions, an edge, is one step along one of them.
        """
        return [
            Axis(exponent + 1, lambda factors, prime=prime, inner=inner: _exponent(prod(factors[-inner:]), prime))
            for prime, exponent in self.exponents.items()
            for inner in range(1, self.parts)
        ]

    def nearest(self, value):
        """The factorisation with the nearest tile extents by ratio, from the innermost outwards."""
        if not isinstance(value, (list, tuple)) or len(value) != self.parts:
            raise self.error(f"expected a list of {self.parts} factors, got {value!r}")
        if not all(is_integer(factor) and factor >= 1 for factor in value):
            raise self.error(f"expected positive integers, got {value!r}")
        left, factors, wanted = self.product, [], 1
        for factor in value[:0:-1]:
            wanted *= factor
            extent = self.product // left
            factors.append(min(self._divisors(left), key=lambda divisor: abs(log(extent * divisor / wanted))))
            left //= factors[-1]
        return (left, *factors[::-1])

    def _divisors(self, number):
        """All divisors of a divisor of the product."""
        powers = ([prime**count for count in range(_exponent(number, prime) + 1)] for prime in self.exponents)
        return [prod(each) for each in itertools.product(*powers)]

    def to_json(self):
        return {"_type": "factor", "_value": [self.product, self.parts]}


def prime_exponents(number):
    """Prime factorisation as {prime: exponent}, primes ascending.

    >>> prime_exponents(360)
    {2: 3, 3: 2, 5: 1}
    """
    exponents = {}
    divisor = 2
    while divisor * divisor <= number:
        while number % divisor == 0:
            exponents[divisor] = exponents.get(divisor, 0) + 1
            number //= divisor
        divisor += 1 if divisor == 2 else 2
    if number > 1:
        exponents[number] = exponents.get(number, 0) + 1
    return exponents


def _exponent(number, prime):
    """How often a prime divides a number."""
    count = 0
    while number % prime == 0:
        number //= prime
        count += 1
    return count


def _moved(vertex, prime, source, target):
    factors = list(vertex)
    factors[source] //= prime
    factors[target] *= prime
    return tuple(factors)


def _random_composition(total, parts, rng):
    """A uniformly random way to write ``total`` as an ordered sum of ``parts`` non-negative integers (stars and bars)."""
    counts = [0] * parts
    stars, bars = total, parts - 1
    position = 0
    while stars:  # the next symbol of a uniformly random arrangement of the stars and bars that are left
        if rng.random() * (stars + bars) < stars:
            counts[position] += 1
            stars -= 1
        else:
            position += 1
            bars -= 1
    return counts


def _nth_composition(rank, total, parts):
    """Composition number ``rank`` in the order that counts the first position up from 0."""
    counts = []
    for left in range(parts - 1, 0, -1):
        count = 0
        while rank >= (block := comb(total - count + left - 1, left - 1)):
            rank -= block
            count += 1
        counts.append(count)
        total -= count
    return [*counts, total]
