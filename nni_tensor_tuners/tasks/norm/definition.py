"""The 2-norm (Frobenius) of each of a batch of matrices, NRM in the Ansor and Bansor papers."""

from dataclasses import dataclass
from math import sqrt

from ..extents import check_extent
from ..task import TemplateTask, shape_field
from . import cpu, cuda


@dataclass(frozen=True)
class Norm(TemplateTask):
    """Z[i] = sqrt(sum of X[i]^2) with X of shape (b, n, m) and Z of shape (b,), in float32.

    Attributes
    ----------
    n, m
        Rows and columns of a matrix.
    b
        Number of matrices.
    """

    n: int = shape_field("norm: rows of a matrix")
    m: int = shape_field("norm: columns of a matrix")
    b: int = shape_field("norm: number of matrices (default: 1)", 1)

    operator = "norm"
    buffers = ("X", "Z")
    templates = {"cuda": cuda, "cpu": cpu}

    def __post_init__(self):
        for name in ("n", "m", "b"):
            check_extent(self.operator, name, getattr(self, name))

    @property
    def size(self):
        """Elements of a matrix."""
        return self.n * self.m

    @property
    def tolerance(self):
        """The rounding of so many additions grows as their root, and so must what is let pass. Of up to some 10,000 elements
        one that is left out is found; of 65,536 (256 x 256) four are."""
        return min(1e-4, max(1e-6, 1e-7 * sqrt(self.size)))

    @property
    def flop(self):
        """Floating-point operations of one run: a multiplication and an addition for each element."""
        return 2 * self.b * self.size

    @property
    def shapes(self):
        """Shapes of X and Z."""
        return [(self.b, self.n, self.m), (self.b,)]

    def inputs(self, seed=0):
        """X, uniform in [-1, 1), float32, the same for the same seed."""
        import numpy as np

        return [np.random.default_rng(seed).random(self.shapes[0], dtype=np.float32) * 2 - 1]

    def reference(self, x, out=None):
        """Z by NumPy, float32, written to ``out`` where one is given: each matrix's product with itself."""
        import numpy as np

        flat = x.reshape(self.b, 1, self.size)
        return np.sqrt(np.matmul(flat, flat.swapaxes(1, 2)).reshape(self.b), out=out)

    def space(self):
        """A factorisation of b in 2 parts, and of a matrix's elements, as they lie in memory, in 4."""
        return {"B": {"_type": "factor", "_value": [self.b, 2]}, "K": {"_type": "factor", "_value": [self.size, 4]}}
