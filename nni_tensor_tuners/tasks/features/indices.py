"""Integer expressions of loop variables: their bounds, and how fast they grow along one of them."""

from dataclasses import dataclass
from math import gcd


@dataclass(frozen=True)
class Sum:
    """A constant, and multiples of variables, which are numbered, and of `Division`s: {number or division: factor}."""

    terms: dict
    constant: int = 0

    def variables(self):
        """The numbers of the variables in it, a set."""
        inside = [term.of.variables() if isinstance(term, Division) else {term} for term in self.terms]
        return set().union(*inside)

    def bounds(self, lengths):
        """(Least, greatest) value where variables run from 0 to their length - 1; those without a length stay at 0."""
        low = high = self.constant
        for term, factor in self.terms.items():
            least, most = _bounds(term, lengths)
            low += factor * (least if factor > 0 else most)
            high += factor * (most if factor > 0 else least)
        return low, high

    def values(self, lengths):
        """How many values it takes where variables run so; an upper bound, exact where terms do not overlap, or have no gaps."""
        combinations, between, step = 1, 0, 0
        for term, factor in self.terms.items():
            least, most = _bounds(term, lengths)
            if most > least:
                combinations *= most - least + 1
                between += (most - least) * abs(factor)
                step = gcd(step, factor)
        return min(combinations, between // (step or 1) + 1)

    def slope(self, variable):
        """By how much the value grows when a variable goes from 0 to 1 and the others are 0."""
        slope = self.terms.get(variable, 0)
        for term, factor in self.terms.items():
            if isinstance(term, Division):
                slope += factor * term.slope(variable)
        return slope

    def plus(self, other, factor=1):
        """self + factor * other."""
        terms = dict(self.terms)
        for term, each in other.terms.items():
            terms[term] = terms.get(term, 0) + factor * each
        return Sum({term: each for term, each in terms.items() if each}, self.constant + factor * other.constant)


@dataclass(frozen=True, eq=False)
class Division:
    """The quotient (rounded down) or the remainder of a `Sum` by a positive number."""

    of: Sum
    by: int
    remainder: bool

    def bounds(self, lengths):
        low, high = self.of.bounds(lengths)
        if not self.remainder:
            return low // self.by, high // self.by
        return (low % self.by, high % self.by) if low // self.by == high // self.by else (0, self.by - 1)

    def slope(self, variable):
        before, _ = self.of.bounds({})
        after = before + self.of.slope(variable)
        return after % self.by - before % self.by if self.remainder else after // self.by - before // self.by


def _bounds(term, lengths):
    return term.bounds(lengths) if isinstance(term, Division) else (0, lengths.get(term, 1) - 1)


def index_of(expression, values):
    """A TIR expression as a `Sum`; ``values`` has those of its variables.

    What a constant bounds (min, max) counts as if it had no bound, and what else stands in it as 0.
    """
    kind = type(expression).__name__
    if kind == "Var":
        return values.get(expression, Sum({}))
    if kind == "IntImm":
        return Sum({}, int(expression.value))
    if kind == "Cast":
        return index_of(expression.value, values)
    if kind not in ("Add", "Sub", "Mul", "FloorDiv", "FloorMod", "Min", "Max"):
        return Sum({})
    a, b = index_of(expression.a, values), index_of(expression.b, values)
    if kind in ("Min", "Max"):
        return a if not b.terms else b if not a.terms else Sum({})
    if kind in ("Add", "Sub"):
        return a.plus(b, 1 if kind == "Add" else -1)
    if kind == "Mul":
        return Sum({}).plus(a, b.constant) if not b.terms else Sum({}).plus(b, a.constant) if not a.terms else Sum({})
    if b.terms or b.constant < 1:
        return Sum({})
    return _divided(a, b.constant, kind == "FloorMod")


def _divided(a, by, remainder):
    whole = {term: factor for term, factor in a.terms.items() if factor % by == 0}
    rest = Sum({term: factor for term, factor in a.terms.items() if factor % by}, a.constant % by)
    quotient = Sum({term: factor // by for term, factor in whole.items()}, a.constant // by)
    if not rest.terms:
        return Sum({}, rest.constant) if remainder else quotient
    return Sum({Division(rest, by, True): 1}) if remainder else quotient.plus(Sum({Division(rest, by, False): 1}))
