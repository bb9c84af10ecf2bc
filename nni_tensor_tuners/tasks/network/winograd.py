"""Winograd's convolutions F(m x m, r x r): fewer multiplications, for more additions and memory. TVM is imported inside functions only.

A. Lavin, S. Gray, Fast algorithms for convolutional neural networks (2015), section 4: a tile of m x m outputs is
A' [(G g G') * (B' d B)] A, g being the kernel of r x r, d the inputs of the tile, n x n with n = m + r - 1, * the product of elements.
Over channels and tiles that product is n^2 matrix products, with (m r / n)^2 times fewer multiplications than the convolution: for 3 x 3,
2.25 with m = 2, 4 with m = 4. Weights being constant, kernels are transformed here; they then take (n / r)^2 times the memory.

In float32 n = 6 is right to some 1e-5 of the largest output, n = 4 to 1e-6.
"""

import functools
from math import prod

from ..program import rules
from .pack import block_of
from .rewrite import ELEMENTWISE_AFTER, OPAQUE, rewritten

# By n: where the polynomials are evaluated that make the transforms, infinity aside.
POINTS = {4: (0, 1, -1), 6: (0, 1, -1, 2, -2)}


@functools.cache
def transforms(tile, kernel):
    """B', G and A' of F(tile, kernel) (Toom and Cook's algorithm, transposed), as lists of rows."""
    import numpy as np

    points = POINTS[tile + kernel - 1]
    others = [[other for other in points if other != point] for point in points]
    of_input = [[*np.poly(each)[::-1], 0] for each in others] + [list(np.poly(points)[::-1])]
    scales = [prod(point - other for other in each) for point, each in zip(points, others)]
    of_kernel = [[point**power / scale for power in range(kernel)] for point, scale in zip(points, scales)]
    of_kernel.append([0] * (kernel - 1) + [1])
    of_output = [[*(point**power for point in points), int(power == tile - 1)] for power in range(tile)]
    return of_input, of_kernel, of_output


def tiles_for(shape):
    """The m that there are for a convolution, a shape as `shape_of` has it."""
    kernel = int(shape.split()[5])
    return [side - kernel + 1 for side in POINTS if side > kernel]


def fits(module, lanes):
    """What the convolutions of a model, channels last, are that can be computed so: `shape_of` each."""
    found = {}

    def look(call, name, _):
        if (shape := shape_of(call, name, lanes)) is not None:
            found[shape] = None
        return call

    rewritten(module, look)
    return list(found)


def shape_of(call, name, lanes):
    """Batch, height, width, input channels, output channels, kernel and padding on four sides of a convolution that fits, numbers in a
    text; None of anything else."""
    if name != "relax.nn.conv2d" or [str(call.attrs.data_layout), str(call.attrs.kernel_layout)] != ["NHWC", "HWIO"]:
        return None
    (data, weight), attributes = call.args, call.attrs
    if not hasattr(weight, "value") or not str(weight.ty.dtype) == str(data.ty.dtype) == "float32" or int(attributes.groups) != 1:
        return None
    down, across, inner, outer = (int(extent) for extent in weight.ty.shape)
    ones = {int(each) for each in (*attributes.strides, *attributes.dilation)}
    if down != across or not 3 <= down < max(POINTS) or ones != {1} or None in (block_of(inner, lanes), block_of(outer, lanes)):
        return None
    numbers = *(int(extent) for extent in data.ty.shape), outer, down, *(int(each) for each in attributes.padding)
    return " ".join(map(str, numbers))


def alone(shape):
    """A model of one convolution of a shape as `shape_of` has it, its weights random."""
    import numpy as np
    from tvm import relax

    batch, height, width, inner, outer, kernel, *padding = map(int, shape.split())
    weight = relax.const(np.random.default_rng(0).uniform(-1, 1, (kernel, kernel, inner, outer)).astype("float32"))
    builder, data = relax.BlockBuilder(), relax.Var("data", relax.TensorType((batch, height, width, inner), "float32"))
    with builder.function("main", [data]):
        with builder.dataflow():
            output = builder.emit_output(relax.op.nn.conv2d(data, weight, padding=padding, data_layout="NHWC", kernel_layout="HWIO"))
        builder.emit_func_output(output)
    return builder.finalize()


def transformed(module, lanes, ways):
    """A model, channels last, whose convolutions of the shapes in ``ways`` (shape -> m) are computed so, on vectors of ``lanes``."""

    def rewrite(call, name, builder):
        if (shape := shape_of(call, name, lanes)) not in ways:
            return call
        tile, output = ways[shape], [int(extent) for extent in call.ty.shape]
        kernel, above, left = map(int, shape.split()[5:8])

        def called(compute, *given, pattern):
            hint = f"winograd{compute.__name__}"
            return builder.call_te(compute, *given, primfunc_name_hint=hint, primfunc_attrs={"op_pattern": pattern})

        padding, image = (above, left), output[1:3]
        data = builder.emit(called(_input, call.args[0], padding, image, tile, kernel, lanes, pattern=OPAQUE))
        weight = _weight(call.args[1], tile, block_of(output[-1], lanes))
        products = builder.emit(called(_products, data, weight, pattern=OPAQUE))
        return called(_output, products, output, tile, kernel, lanes, pattern=ELEMENTWISE_AFTER)

    return rewritten(module, rewrite)


def _weight(weight, tile, block):
    """G g G', packed as `pack` packs weights: (n^2, out / block, in, block)."""
    import numpy as np
    from tvm import relax

    array = weight.value.numpy().astype("float64")
    transform = np.array(transforms(tile, len(array))[1])
    array = np.einsum("ia,jb,abcf->ijcf", transform, transform, array)
    inner, outer = array.shape[2:]
    array = array.reshape(-1, inner, outer // block, block).transpose(0, 2, 1, 3)
    return relax.const(np.ascontiguousarray(array, "float32"))


def _tiles(image, tile):
    return [-(-extent // tile) for extent in image]


def _combined(matrix, row, values):
    """Row ``row``, an expression, of a matrix times a vector of values; nothing is left to choose once loops over rows are unrolled."""
    from tvm import tirx

    def sum_of(numbers):
        terms = [value if number == 1 else value * tirx.const(float(number), "float32") for number, value in zip(numbers, values) if number]
        total = terms[0]
        for term in terms[1:]:
            total = total + term
        return total

    chosen = sum_of(matrix[-1])
    for place in range(len(matrix) - 2, -1, -1):
        chosen = tirx.Select(row == place, sum_of(matrix[place]), chosen)
    return chosen


def _input(data, padding, image, m, kernel, lanes):
    """B' d B: data (batch, height, width, c) to (n^2, tiles, c)."""
    from tvm import te, tirx

    batch, height, width, channels = data.shape
    (down, across), (above, left) = _tiles(image, m), padding
    matrix, side, tiles = transforms(m, kernel)[0], m + kernel - 1, batch * down * across

    def element(tile, a, b, c):
        y = tile // across % down * m + a - above
        x = tile % across * m + b - left
        inside = tirx.all(y >= 0, y < height, x >= 0, x < width)
        return tirx.if_then_else(inside, data[tile // (down * across), y, x, c], tirx.const(0.0, "float32"))

    taken = te.compute((tiles, side, side, channels), element, name="tile", attrs={"schedule_rule": rules.OF_ANOTHER})
    rows = te.compute(
        (tiles, side, side, channels),
        lambda t, i, b, c: _combined(matrix, i, [taken[t, a, b, c] for a in range(side)]),
        name="rows",
        attrs={"schedule_rule": rules.OF_ANOTHER},
    )
    return te.compute(
        (side * side, tiles, channels),
        lambda e, t, c: _combined(matrix, e % side, [rows[t, e // side, b, c] for b in range(side)]),
        name="winograd_input",
        varargs_names=["e", "t", "c"],
        attrs={"schedule_rule": rules.INPUT, "lanes": lanes},
    )


def _products(data, weight):
    """(n^2, tiles, c) times (n^2, out / block, c, block): (n^2, tiles, out)."""
    from tvm import te

    elements, blocks, inner, block = weight.shape
    k = te.reduce_axis((0, inner), name="k")
    return te.compute(
        (elements, data.shape[1], blocks * block),
        lambda e, t, f: te.sum(data[e, t, k] * weight[e, f // block, k, f % block], axis=[k]),
        name="winograd_products",
        varargs_names=["e", "t", "f"],
    )


def _output(products, shape, m, kernel, lanes):
    """A' p A: (n^2, tiles, out) to the output."""
    from tvm import te

    _, tiles, channels = products.shape
    (down, across), matrix, side = _tiles(shape[1:3], m), transforms(m, kernel)[2], m + kernel - 1
    rows = te.compute(
        (tiles, m, side, channels),
        lambda t, p, j, f: _combined(matrix, p, [products[i * side + j, t, f] for i in range(side)]),
        name="rows",
        attrs={"schedule_rule": rules.OF_ANOTHER},
    )
    return te.compute(
        shape,
        lambda n, y, x, f: _combined(
            matrix, x % m, [rows[(n * down + y // m) * across + x // m, y % m, j, f] for j in range(side)]
        ),
        name="winograd_output",
        varargs_names=["n", "y", "x", "f"],
        attrs={"schedule_rule": rules.OUTPUT, "lanes": lanes, "tile": m},
    )
