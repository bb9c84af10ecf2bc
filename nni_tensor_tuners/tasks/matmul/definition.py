"""Matrix multiplication, one or a batch of them (OpEvo appendices B.1 and B.2)."""

from dataclasses import dataclass

from ..extents import check_extent
from ..task import TemplateTask, shape_field
from . import cpu, cuda

LAYOUTS = ("NN", "NT", "TN", "TT")


@dataclass(frozen=True)
class Matmul(TemplateTask):
    """Z = X Y with X of shape (n, k), Y of shape (k, m) and Z of shape (n, m), in float32.

    Attributes
    ----------
    n, k, m
        Rows of X, the reduced extent, columns of Y.
    layout
        One letter for each of X and Y: N is stored as it is, T is stored transposed (X as (k, n), Y as (m, k)).
    """

    n: int = shape_field("matmul: rows of X and Z")
    k: int = shape_field("columns of X, rows of Y")
    m: int = shape_field("columns of Y and Z")
    layout: str = shape_field("T where X or Y is stored transposed (default: NN)", "NN", choices=LAYOUTS)

    operator = "matmul"
    buffers = ("X", "Y", "Z")
    templates = {"cuda": cuda, "cpu": cpu}

    def __post_init__(self):
        for name in ("n", "k", "m"):
            check_extent(self.operator, name, getattr(self, name))
        if self.layout not in LAYOUTS:
            raise ValueError(f"{self.operator}: layout must be one of {', '.join(LAYOUTS)}, got {self.layout!r}")

    @property
    def flop(self):
        """Floating-point operations of one run, a multiplication and an addition counted as two."""
        return 2 * self.n * self.k * self.m

    @property
    def shapes(self):
        """Shapes of X, Y and Z as they are stored."""
        x, y = (self.n, self.k), (self.k, self.m)
        return [x[::-1] if self.layout[0] == "T" else x, y[::-1] if self.layout[1] == "T" else y, (self.n, self.m)]

    def inputs(self, seed=0):
        """X and Y, uniform in [-1, 1), float32, the same for the same seed."""
        import numpy as np

        rng = np.random.default_rng(seed)
        return [rng.uniform(-1, 1, shape).astype(np.float32) for shape in self.shapes[:2]]

    def reference(self, x, y, out=None):
        """Z by NumPy, float32, written to ``out`` where one is given."""
        import numpy as np

        if self.layout[0] == "T":
            x = np.swapaxes(x, -1, -2)
        if self.layout[1] == "T":
            y = np.swapaxes(y, -1, -2)
        return np.matmul(x, y, out=out)

    def space(self):
        """A factorisation of each extent: of n and m in 4 parts, of k in 3."""
        return {
            "X": {"_type": "factor", "_value": [self.n, 4]},
            "Y": {"_type": "factor", "_value": [self.m, 4]},
            "K": {"_type": "factor", "_value": [self.k, 3]},
        }

    def prim_func(self):
        """The operator as a TVM PrimFunc with the buffers X, Y, Z and the block Z to schedule."""
        from tvm import te

        x, y = (te.placeholder(shape, name=name) for shape, name in zip(self.shapes, "XY"))
        r = te.reduce_axis((0, self.k), name="k")

        def product(*place):
            *batch, i, j = place
            at_x = (*batch, r, i) if self.layout[0] == "T" else (*batch, i, r)
            at_y = (*batch, j, r) if self.layout[1] == "T" else (*batch, r, j)
            return te.sum(x[at_x] * y[at_y], axis=r)

        return te.create_prim_func([x, y, te.compute(self.shapes[2], product, name="Z")])


@dataclass(frozen=True)
class BatchMatmul(Matmul):
    """``b`` matrix multiplications: Z[i] = X[i] Y[i], X of shape (b, n, k), Y (b, k, m), Z (b, n, m), in float32.

    The layout is that of each matrix: with "T" X is stored as (b, k, n), Y as (b, m, k).
    """

    b: int = shape_field("batch_matmul: number of matrices", 1)

    operator = "batch_matmul"

    def __post_init__(self):
        super().__post_init__()
        check_extent(self.operator, "b", self.b)

    @property
    def flop(self):
        """Floating-point operations of one run, a multiplication and an addition counted as two."""
        return self.b * super().flop

    @property
    def shapes(self):
        """Shapes of X, Y and Z as they are stored."""
        return [(self.b, *shape) for shape in super().shapes]

    def space(self):
        """As for one, and b in 2 parts."""
        return {"B": {"_type": "factor", "_value": [self.b, 2]}, **super().space()}
