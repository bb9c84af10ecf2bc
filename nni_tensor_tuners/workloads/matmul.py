"""Matrix multiplication (OpEvo appendix B.1)."""

from dataclasses import dataclass

LAYOUTS = ("NN", "NT", "TN", "TT")


@dataclass(frozen=True)
class Matmul:
    """Z = X Y with X of shape (n, k), Y of shape (k, m) and Z of shape (n, m), in float32.

    Attributes
    ----------
    n, k, m
        Rows of X, the reduced extent, columns of Y.
    layout
        One letter for each of X and Y: N is stored as it is, T is stored transposed (X as (k, n), Y as (m, k)).
    """

    n: int
    k: int
    m: int
    layout: str = "NN"

    operator = "matmul"

    def __post_init__(self):
        for name in ("n", "k", "m"):
            extent = getattr(self, name)
            if isinstance(extent, bool) or not isinstance(extent, int) or extent < 1:
                raise ValueError(f"matmul: {name} must be an integer >= 1, got {extent!r}")
        if self.layout not in LAYOUTS:
            raise ValueError(f"matmul: layout must be one of {', '.join(LAYOUTS)}, got {self.layout!r}")

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

        return np.matmul(x.T if self.layout[0] == "T" else x, y.T if self.layout[1] == "T" else y, out=out)

    def prim_func(self):
        """The operator as a TVM PrimFunc with the buffers X, Y, Z and the block Z to schedule."""
        from tvm import te

        x_shape, y_shape, _ = self.shapes
        x, y = te.placeholder(x_shape, name="X"), te.placeholder(y_shape, name="Y")
        r = te.reduce_axis((0, self.k), name="k")
        at_x = (lambda i, k: x[k, i]) if self.layout[0] == "T" else (lambda i, k: x[i, k])
        at_y = (lambda k, j: y[j, k]) if self.layout[1] == "T" else (lambda k, j: y[k, j])
        z = te.compute((self.n, self.m), lambda i, j: te.sum(at_x(i, r) * at_y(r, j), axis=r), name="Z")
        return te.create_prim_func([x, y, z])
