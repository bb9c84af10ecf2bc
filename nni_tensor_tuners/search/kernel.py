"""The covariance of WalkGP: how alike two configurations are by q-random walks on the graphs of their parameters.

Every parameter is seen along one or more *axes*, each a small graph with numbered levels:

- discrete: the path of its values; where they are not all powers of two times one number, also the path of the powers of two
  that divide them (a block of 96 threads is near 112, and in another way near 32);
- choice: the complete graph of its values;
- factor: for every prime, the tile extents (the products of the innermost 1, 2, ... factors), each a path of exponents. Moving
  a prime between adjacent positions, OpEvo's edge, is one step along one of them. 2^40 in 6 parts is five paths of 41 levels;
- permutation: the position of every element, a path.

On a graph with Laplacian L and largest degree d a walker moves with transition matrix P = I - L / d: along a random edge, staying
where it is if it would leave the border. It stops before each step with probability 1 - q (OpEvo section 4.3), which makes
S = (1 - q) (I - q P)^-1 the distribution of where it ends (OpEvo appendix A), symmetric and positive definite. S scaled to
unit diagonal is the axis's correlation; the product over all axes that of two configurations.

Along a path S falls about as exp(-distance / length), which is right for tile extents, where performance jumps from one to the
next. Over a list of numbers it changes more smoothly, and S is averaged with a squared exponential of the same length.
"""

import math

import numpy as np

from ..space import Choice, Discrete, Factor, Permutation
from .base import check_elsewhere

# A longer path is seen as this many runs of neighbouring values.
MAX_LEVELS = 128
# Correlations below this are rounding errors, and their logs are wanted.
SMALLEST = 1e-12
KERNELS = ("mixed", "walk", "rbf", "hamming")


class Axis:
    """A graph along which a parameter is seen.

    Parameters
    ----------
    size
        Number of levels, which are 0 .. size - 1.
    level
        Function from a vertex of the parameter to its level.
    complete
        Whether every level is adjacent to every other, instead of to the next ones only.
    smooth
        Whether the "mixed" kernel is smoother here than the walk.
    """

    def __init__(self, size, level, complete=False, smooth=False):
        self.size = size
        self.level = level
        self.complete = complete
        self.smooth = smooth
        if not complete:
            # The path's Laplacian has cosines as eigenvectors.
            number = np.arange(size)
            basis = np.cos(np.pi * np.outer(number + 0.5, number) / size)
            self._basis = basis / np.linalg.norm(basis, axis=0)
            self._eigenvalues = 2 - 2 * np.cos(np.pi * number / size)

    def correlation(self, length, kernel="mixed"):
        """Correlation of the levels, shape (size, size), unit diagonal.

        Parameters
        ----------
        length
            Log of the correlation length as a fraction of the path; on a path q / (1 - q) is the square of the length in edges.
            On a complete graph, log odds of the correlation of two different levels.
        kernel
            "mixed" (the mean of "walk" and "rbf" on smooth axes, "walk" on others), "walk", "rbf" (squared exponential of the
            levels' numbers) or "hamming" (of two levels it matters only whether they are the same).
        """
        if kernel == "mixed" and self.smooth:
            return (self.correlation(length, "walk") + self.correlation(length, "rbf")) / 2
        if self.complete or kernel == "hamming":
            between = 1 / (1 + np.exp(-length))
            return (1 - between) * np.eye(self.size) + between
        edges = np.exp(length) * self.size
        if kernel == "rbf":
            number = np.arange(self.size)
            return np.maximum(np.exp(-0.5 * ((number[:, None] - number) / edges) ** 2), SMALLEST)
        # (1 - q) / (1 - q (1 - eigenvalue / 2)) with q / (1 - q) = edges^2
        stops = (self._basis / (1 + edges**2 * self._eigenvalues / 2)) @ self._basis.T
        scale = np.sqrt(np.diag(stops))
        return np.maximum(stops / np.outer(scale, scale), SMALLEST)


class Encoder:
    """Turns points of a space into rows of zeros and ones, a one for the level on each axis.

    Sums over axes of table entries are then matrix products, which is what makes the kernel fast.

    Parameters
    ----------
    space
        A `SearchSpace`.
    divisibility
        Whether discrete parameters have their second axis.

    Attributes
    ----------
    axes
        All axes, of parameters that have more than one value.
    width
        Length of a row.
    """

    def __init__(self, space, divisibility=True):
        self._space = space
        self.axes = []
        self._groups = []  # (parameter's number, its axes, the number of the first of them, levels known)
        for number, parameter in enumerate(space.parameters):
            if parameter.size > 1:
                axes = parameter_axes(parameter, divisibility)
                self._groups.append((number, axes, len(self.axes), {}))
                self.axes += axes
        self.starts = np.concatenate([[0], np.cumsum([axis.size for axis in self.axes])]).astype(int)
        self.width = int(self.starts[-1])

    def rows(self, points):
        """Rows of shape (len(points), width), float32."""
        columns = np.empty((len(points), len(self.axes)), dtype=int)
        for number, axes, first, known in self._groups:
            levels = []
            for point in points:
                vertex = point[number]
                if vertex not in known:
                    known[vertex] = [axis.level(vertex) for axis in axes]
                levels.append(known[vertex])
            columns[:, first : first + len(axes)] = np.reshape(levels, (len(points), len(axes)))
        rows = np.zeros((len(points), self.width), dtype=np.float32)
        rows[np.arange(len(points))[:, None], columns + self.starts[:-1]] = 1
        return rows

    def rows_elsewhere(self, configs):
        """Rows of configurations of another space with the same parameters: other extents, other values.

        A number stands for the nearest one here (by ratio); a factorisation for the one here with the nearest tile extents.

        Raises
        ------
        ValueError
            If the parameters are others, or have other elements or numbers of factors.
        """
        points = []
        for config in configs:
            check_elsewhere(self._space, config)
            points.append(tuple(nearest_vertex(parameter, config[parameter.name]) for parameter in self._space.parameters))
        return self.rows(points)

    def log_table(self, lengths, kernel):
        """Logs of the axes' correlations on the diagonal blocks of a matrix of shape (width, width).

        ``rows(a) @ log_table @ rows(b).T`` is the log of the correlations between a and b.
        """
        table = np.zeros((self.width, self.width))
        for axis, length, block in zip(self.axes, lengths, self.blocks()):
            table[block, block] = np.log(axis.correlation(length, kernel))
        return table

    def blocks(self):
        """The slice of columns of every axis."""
        return [slice(start, end) for start, end in zip(self.starts, self.starts[1:])]


def nearest_vertex(parameter, value):
    """What stands here for a value of a parameter of the same name elsewhere; of a factor parameter only the tiles count."""
    if isinstance(parameter, Factor) and isinstance(value, (list, tuple)) and len(value) == parameter.parts:
        return tuple(value)
    if isinstance(parameter, Discrete) and isinstance(value, (int, float)) and not isinstance(value, bool):
        return min(parameter.numbers, key=lambda number: abs(_log(number) - _log(value)))
    try:
        return parameter.encode(value)
    except ValueError as error:
        raise ValueError(f"transfer: {error}") from None


def _log(number):
    return math.copysign(math.log1p(abs(number)), number)


def parameter_axes(parameter, divisibility=True):
    """The axes of a parameter that has more than one value."""
    if isinstance(parameter, Choice):
        return [Axis(parameter.size, lambda vertex: vertex, complete=True)]
    if isinstance(parameter, Permutation):
        elements = range(len(parameter.index.values))
        return [Axis(len(elements), lambda order, element=element: order.index(element)) for element in elements]
    if isinstance(parameter, Factor):
        return [
            Axis(
                exponent + 1,
                lambda factors, prime=prime, exponent=exponent, inner=inner: _exponent(factors[-inner:], prime, exponent),
            )
            for prime, exponent in parameter.exponents.items()
            for inner in range(1, parameter.parts)
        ]
    if not isinstance(parameter, Discrete):
        raise TypeError(f"no axes for {type(parameter).__name__}")
    rank = {number: i for i, number in enumerate(parameter.numbers)}
    size = min(parameter.size, MAX_LEVELS)
    axes = [Axis(size, lambda number: rank[number] * size // parameter.size, smooth=True)]
    powers = _powers_of_two(parameter.numbers) if divisibility else {}
    if powers:
        order = {power: i for i, power in enumerate(sorted(set(powers.values())))}
        axes.append(Axis(len(order), lambda number: order[powers[number]], smooth=True))
    return axes


def _powers_of_two(numbers):
    """number -> the largest power of two that divides it; empty where this says nothing that the order does not."""
    if not all(isinstance(number, int) and number > 0 for number in numbers):
        return {}
    powers = {number: number & -number for number in numbers}
    one_odd_part = len({number // power for number, power in powers.items()}) == 1
    return {} if one_odd_part or len(set(powers.values())) == 1 else powers


def _exponent(factors, prime, most):
    """How often a prime divides the product of ``factors``."""
    count = 0
    for factor in factors:
        while factor % prime == 0:
            factor //= prime
            count += 1
    return min(count, most)
