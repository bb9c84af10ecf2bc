"""How alike two configurations are by q-random walks on the graphs of their parameters.

Every parameter names the small graphs along which it is seen (`Parameter.axes`). On a graph with Laplacian L and largest degree
d a walker moves with transition matrix P = I - L / d: along a random edge, staying where it is if it would leave the border. It
stops before each step with probability 1 - q (OpEvo section 4.3), which makes S = (1 - q) (I - q P)^-1 the distribution of
where it ends (OpEvo appendix A), symmetric and positive definite; scaled to unit diagonal it is the axis's correlation.

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


def correlation_of(axis, lengths, kernel="mixed"):
    """`correlation` of an `Axis`, with its level "not active" last where it is optional.

    A parameter that is not active counts as the mean over its levels: 1 / sqrt(mean of S) times the mean of a row of S is its
    correlation with a level, close to 1 where the parameter matters little.
    """
    levels = correlation(_levels(axis), lengths, kernel, axis.complete, axis.smooth)
    if not axis.optional:
        return levels
    absent = np.maximum(levels.mean(axis=-1) / np.sqrt(levels.mean(axis=(-2, -1)))[..., None], SMALLEST)
    one = np.ones((*absent.shape[:-1], 1, 1))
    return np.block([[levels, absent[..., None]], [absent[..., None, :], one]])


def correlation(size, lengths, kernel="mixed", complete=False, smooth=False):
    """Correlation of the levels of an axis (`space.parameter.Axis`), shape (size, size), unit diagonal.

    Parameters
    ----------
    lengths
        Log of the correlation length as a fraction of the path; on a path q / (1 - q) is the square of the length in edges. On
        a complete graph, log odds of the correlation of two different levels. Of lengths of shape (...,) the correlations are
        (..., size, size).
    kernel
        "mixed" (the mean of "walk" and "rbf" on smooth axes, "walk" on others), "walk", "rbf" (squared exponential of the
        levels' numbers) or "hamming" (of two levels it matters only whether they are the same).
    """
    if kernel == "mixed" and smooth:
        return (correlation(size, lengths, "walk", complete) + correlation(size, lengths, "rbf", complete)) / 2
    lengths = np.asarray(lengths, dtype=float)[..., None, None]
    if complete or kernel == "hamming":
        between = 1 / (1 + np.exp(-lengths))
        return (1 - between) * np.eye(size) + between
    edges, number = np.exp(lengths) * size, np.arange(size)
    if kernel == "rbf":
        return np.maximum(np.exp(-0.5 * ((number[:, None] - number) / edges) ** 2), SMALLEST)
    basis, eigenvalues = _path(size)
    # The eigenvalues of S are (1 - q) / (1 - q (1 - eigenvalue / 2)), with q / (1 - q) = edges^2.
    stops = (basis / (1 + edges**2 * eigenvalues / 2)) @ basis.T
    scale = np.sqrt(np.diagonal(stops, axis1=-2, axis2=-1))
    return np.maximum(stops / (scale[..., :, None] * scale[..., None, :]), SMALLEST)


@functools.cache
def _path(size):
    """Eigenvectors, as columns, and eigenvalues of a path's Laplacian: cosines."""
    number = np.arange(size)
    basis = np.cos(np.pi * np.outer(number + 0.5, number) / size)
    return basis / np.linalg.norm(basis, axis=0), 2 - 2 * np.cos(np.pi * number / size)


class WalkKernel:
    """k = product of the axes' correlations, for rows of zeros and ones.

    A row has a one for the point's level on each axis, so that sums over axes are matrix products, which makes this fast.

    Parameters
    ----------
    space
        A `SearchSpace`.
    kernel, divisibility
        As for `WalkGP`.

    Attributes
    ----------
    axes
        Those of all parameters that have more than one value.
    blocks
        The slice of columns of each.
    width
        Their number of columns.
    """

    def __init__(self, space, kernel="mixed", divisibility=True):
        self.kernel = kernel
        self._groups = [  # (parameter's number, its levels)
            (number, _LevelsOf(parameter.axes(divisibility)))
            for number, parameter in enumerate(space.parameters)
            if parameter.size > 1
        ]
        self.axes = [axis for _, levels in self._groups for axis in levels.axes]
        starts = np.concatenate([[0], np.cumsum([_levels(axis) + axis.optional for axis in self.axes])]).astype(int)
        self.width, self._starts = int(starts[-1]), starts[:-1]
        self.blocks = [slice(start, end) for start, end in zip(starts, starts[1:])]
        self._alike = {}  # what an axis's correlation depends on -> the numbers of the axes of which it is the same
        for number, axis in enumerate(self.axes):
            self._alike.setdefault(axis._replace(size=_levels(axis), level=None), []).append(number)

    def rows(self, points):
        """Rows of shape (len(points), width), float32."""
        levels = [[level for number, of in self._groups for level in of[point[number]]] for point in points]
        rows = np.zeros((len(points), self.width), dtype=np.float32)
        if points:
            rows[np.arange(len(points))[:, None], np.reshape(levels, (len(points), -1)).astype(int) + self._starts] = 1
        return rows

    def table(self, lengths):
        """Logs of the axes' correlations, blocks on the diagonal of a matrix of shape (width, width)."""
        logs = np.zeros((self.width, self.width))
        for numbers in self._alike.values():  # one at a time takes several times as long
            each = np.log(correlation_of(self.axes[numbers[0]], np.asarray(lengths)[numbers], self.kernel))
            for number, block in zip(numbers, each):
                logs[self.blocks[number], self.blocks[number]] = block
        return logs

    def between(self, a, b, logs):
        """k between rows a and b, of shape (len(a), len(b)), given a `table`."""
        k = (a @ logs) @ b.T
        return np.exp(k, out=k)  # large arrays: every pass over them counts


class _LevelsOf(dict):
    """Vertex -> its levels on some axes of a parameter, filled as vertices are looked up."""

    def __init__(self, axes):
        super().__init__()
        self.axes = axes

    def __missing__(self, vertex):
        levels = [_levels(axis) if vertex is None else axis.level(vertex) * _levels(axis) // axis.size for axis in self.axes]
        return self.setdefault(vertex, levels)


def _levels(axis):
    return axis.size if axis.complete else min(axis.size, MAX_LEVELS)
