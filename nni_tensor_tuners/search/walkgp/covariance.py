"""How alike two configurations are by q-random walks on the graphs of their parameters.

Every parameter names the small graphs along which it is seen (`Parameter.axes`). On a graph with Laplacian L and largest degree d
a walker moves with transition matrix P = I - L / d: along a random edge, staying where it is if it would leave the border. It
stops before each step with probability 1 - q (OpEvo section 4.3), which makes S = (1 - q) (I - q P)^-1 the distribution of where
it ends (OpEvo appendix A), symmetric and positive definite. S scaled to unit diagonal is the axis's correlation; the product over
all axes that of two configurations.

Along a path S falls about as exp(-distance / length), which is right for tile extents, where performance jumps from one to the
next. Over a list of numbers it changes more smoothly, and S is averaged with a squared exponential of the same length.
"""

import functools

import numpy as np

# A longer path is seen as this many runs of neighbouring levels.
MAX_LEVELS = 128
# Correlations below this are rounding errors, and their logs are wanted.
SMALLEST = 1e-12
KERNELS = ("mixed", "walk", "rbf", "hamming")


def correlation(size, length, kernel="mixed", complete=False, smooth=False):
    """Correlation of the levels of an axis (`space.parameter.Axis`), shape (size, size), unit diagonal.

    Parameters
    ----------
    length
        Log of the correlation length as a fraction of the path; on a path q / (1 - q) is the square of the length in edges. On a
        complete graph, log odds of the correlation of two different levels.
    kernel
        "mixed" (the mean of "walk" and "rbf" on smooth axes, "walk" on others), "walk", "rbf" (squared exponential of the levels'
        numbers) or "hamming" (of two levels it matters only whether they are the same).
    """
    if kernel == "mixed" and smooth:
        return (correlation(size, length, "walk", complete) + correlation(size, length, "rbf", complete)) / 2
    if complete or kernel == "hamming":
        between = 1 / (1 + np.exp(-length))
        return (1 - between) * np.eye(size) + between
    edges, number = np.exp(length) * size, np.arange(size)
    if kernel == "rbf":
        return np.maximum(np.exp(-0.5 * ((number[:, None] - number) / edges) ** 2), SMALLEST)
    basis, eigenvalues = _path(size)
    stops = (basis / (1 + edges**2 * eigenvalues / 2)) @ basis.T  # (1 - q) / (1 - q (1 - eigenvalue / 2)), q / (1 - q) = edges^2
    scale = np.sqrt(np.diag(stops))
    return np.maximum(stops / np.outer(scale, scale), SMALLEST)


@functools.cache
def _path(size):
    """Eigenvectors, as columns, and eigenvalues of a path's Laplacian: cosines."""
    number = np.arange(size)
    basis = np.cos(np.pi * np.outer(number + 0.5, number) / size)
    return basis / np.linalg.norm(basis, axis=0), 2 - 2 * np.cos(np.pi * number / size)


class Encoder:
    """Turns points of a space into rows of zeros and ones, a one for the level on each axis.

    Sums over axes of table entries are then matrix products, which is what makes the kernel fast.

    Parameters
    ----------
    space
        A `SearchSpace`.
    divisibility
        Whether integers are also seen by the powers of two that divide them.

    Attributes
    ----------
    axes
        Those of all parameters that have more than one value.
    width
        Length of a row.
    """

    def __init__(self, space, divisibility=True):
        self._groups = [  # (parameter's number, its axes, vertex -> levels as far as known)
            (number, parameter.axes(divisibility), {}) for number, parameter in enumerate(space.parameters) if parameter.size > 1
        ]
        self.axes = [axis for _, axes, _ in self._groups for axis in axes]
        self._starts = np.concatenate([[0], np.cumsum([_levels(axis) for axis in self.axes])]).astype(int)
        self.width = int(self._starts[-1])

    def rows(self, points):
        """Rows of shape (len(points), width), float32."""
        levels = [[level for group in self._groups for level in self._of(point, *group)] for point in points]
        rows = np.zeros((len(points), self.width), dtype=np.float32)
        if points:
            rows[np.arange(len(points))[:, None], np.reshape(levels, (len(points), -1)).astype(int) + self._starts[:-1]] = 1
        return rows

    def blocks(self):
        """The slice of columns of every axis."""
        return [slice(start, end) for start, end in zip(self._starts, self._starts[1:])]

    def tables(self, lengths, kernel):
        """Two matrices of shape (width, width), zero but for a block for each axis: logs of its correlations, and these / axes.

        ``exp(rows(a) @ logs @ rows(b).T)`` is the product of the axes' correlations between a and b, ``rows(a) @ means @
        rows(b).T`` their mean.
        """
        logs, means = np.zeros((2, self.width, self.width))
        for axis, length, block in zip(self.axes, lengths, self.blocks()):
            means[block, block] = correlation(_levels(axis), length, kernel, axis.complete, axis.smooth)
            logs[block, block] = np.log(means[block, block])
        return logs, means / len(self.axes)

    def _of(self, point, number, axes, known):
        vertex = point[number]
        if vertex not in known:
            known[vertex] = [axis.level(vertex) * _levels(axis) // axis.size for axis in axes]
        return known[vertex]


def _levels(axis):
    return axis.size if axis.complete else min(axis.size, MAX_LEVELS)
