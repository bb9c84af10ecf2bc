"""What every parameter type shares: a finite set of values that is the vertex set of a graph.

A *vertex* is the hashable form of a value (a factor parameter's ``[4, 2, 1]`` is the vertex ``(4, 2, 1)``); searches work on
vertices, users see values. Random numbers come from ``rng.random()`` alone, so that both ``random.Random`` and
``numpy.random.Generator`` serve.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

# An exact walk distribution solves a dense linear system over all the values; past this many it is refused, not attempted.
MAX_EXACT_VERTICES = 5000


class Axis(NamedTuple):
    """A small graph along which a kernel sees a parameter: a path, or, where complete, every level beside every other.

    Attributes
    ----------
    size
        Number of levels, which are 0 .. size - 1.
    level
        Function from a vertex of the parameter to its level.
    complete
        Whether every level is adjacent to every other, instead of to the next ones only.
    smooth
        Whether the levels are a list of numbers, along which performance changes gradually, and not tile extents or positions.
    optional
        Whether there is one level more, the last, for a parameter that is not active; ``level`` is not asked for it.
    """

    size: int
    level: Callable
    complete: bool = False
    smooth: bool = False
    optional: bool = False


class Parameter(ABC):
    """A finite parameter with the adjacency of OpEvo section 3.

    Attributes
    ----------
    name
        The parameter's key in the search space; error messages start with it.
    size
        Exact number of values.
    moves
        How many moves there are. A *move* is an edge as seen from any vertex (factor: this prime from that position to that
        one), so that a policy can learn which moves pay; `move` makes one.
    """

    name: str
    size: int
    moves: int

    @abstractmethod
    def sample(self, rng):
        """Draw a vertex, each with probability 1 / size."""

    @abstractmethod
    def unrank(self, index):
        """The vertex numbered ``index``, 0 <= index < size; every vertex has exactly one number."""

    @abstractmethod
    def origin(self):
        """The vertex that transforms nothing: an untiled loop, the smallest number, the first choice, the order as listed."""

    @abstractmethod
    def move(self, vertex, index):
        """The adjacent vertex that move ``index``, 0 <= index < moves, leads to; None where it cannot be made."""

    @abstractmethod
    def features(self, vertex):
        """The vertex as numbers for a model: its factors; its number; 1 for the chosen element, else 0; each element's position
        from 1."""

    def tree_features(self, vertex):
        """`features`, and what trees cannot work out from them: of a factor parameter, the products of the inner factors."""
        return self.features(vertex)

    def features_of_value(self, value):
        """`tree_features` of a value that this parameter has in another space, which need not be one of its values here.

        Raises
        ------
        ValueError
            If the value means nothing here.
        """
        return self.tree_features(self.encode(value))

    @abstractmethod
    def encode(self, value):
        """The vertex of a plain value; ValueError if the value is none of this parameter's."""

    @abstractmethod
    def decode(self, vertex):
        """The plain (JSON) value of a vertex."""

    @abstractmethod
    def to_json(self):
        """This parameter as NNI search-space JSON: ``{"_type": ..., "_value": ...}``."""

    @abstractmethod
    def axes(self, divisibility=True):
        """The graphs along which a kernel sees this parameter; two vertices that are the same on each of them are the same.

        Parameters
        ----------
        divisibility
            Whether integers are also seen by the powers of two that divide them.

        Returns
        -------
        list of Axis
        """

    def nearest(self, value):
        """The vertex that stands for a value of the parameter of this name in another space.

        Raises
        ------
        ValueError
            That names the parameter, if none does.
        """
        return self.encode(value)

    def sample_other(self, vertex, rng):
        """Draw a vertex other than this one, all equally likely; the parameter must have two at least."""
        other = self.sample(rng)
        while other == vertex:
            other = self.sample(rng)
        return other

    def neighbours(self, vertex):
        """List every vertex adjacent to ``vertex``, S(u) of OpEvo equation 3."""
        moved = (self.move(vertex, index) for index in range(self.moves))
        return [neighbour for neighbour in moved if neighbour is not None]

    def step(self, vertex, rng):
        """One uniformly drawn neighbour, or the vertex itself where it has none."""
        neighbours = self.neighbours(vertex)
        return neighbours[int(rng.random() * len(neighbours))] if neighbours else vertex

    def walk(self, vertex, q, rng):
        """Sample the q-random walk distribution around ``vertex`` (OpEvo section 4.3): step on with probability q, else stop."""
        if self.size > 1:
            while rng.random() < q:
                vertex = self.step(vertex, rng)
        return vertex

    def walk_distribution(self, vertex, q):
        """The q-random walk distribution in closed form (OpEvo appendix A).

        Returns
        -------
        dict
            vertex -> probability of stopping there; the probabilities add up to 1.

        Raises
        ------
        ValueError
            If the parameter has more than ``MAX_EXACT_VERTICES`` values.
        """
        import numpy as np  # only here: trials load this module while another one times, so it has to load fast

        if self.size > MAX_EXACT_VERTICES:
            raise ValueError(
                f"parameter '{self.name}': the exact walk distribution needs at most {MAX_EXACT_VERTICES} values, "
                f"this one has {self.size}"
            )
        vertices = [self.unrank(index) for index in range(self.size)]
        number = {v: i for i, v in enumerate(vertices)}
        transition = np.zeros((self.size, self.size))
        for u, source in number.items():
            adjacent = self.neighbours(u)
            for v in adjacent:
                transition[number[v], source] = q / len(adjacent)  # Equation (3), columns are sources
        start = np.zeros(self.size)
        start[number[vertex]] = 1.0
        if self.size == 1:  # no edge to walk along: the walk never leaves
            return {vertex: 1.0}
        stop = (1 - q) * np.linalg.solve(np.eye(self.size) - transition, start)  # S = (1 - q) (I - Q)^-1 p(0)
        return dict(zip(vertices, stop.tolist()))

    def error(self, message):
        """A ValueError that names this parameter."""
        return ValueError(f"search space parameter '{self.name}': {message}")


def is_integer(value):
    """True for an int that is not a bool (JSON's ``true`` is no number)."""
    return isinstance(value, int) and not isinstance(value, bool)
