"""Axes that change places, block by block in registers. TVM is imported inside functions only.

Where another axis is to be the last one, as where an image's channels come last, one of the two arrays is read or written element by
element, which takes longer than many a convolution. Here n vectors along the one axis are read, exchange their halves, their quarters
and so on (log2 n times n shuffles of two vectors), and are written as n vectors along the other.
"""

from .rewrite import OPAQUE, rewritten

# The least block that is worth it.
SMALLEST = 4
KEPT_SERIAL = {"tensor_tuners.serial": 1}


def permuted(module, lanes):
    """A model whose permutations of axes that make another one the last are computed so, on vectors of ``lanes``."""
    from tvm import relax

    def rewrite(call, name, builder):
        if name != "relax.permute_dims" or hasattr(call.args[0], "value") or str(call.ty.dtype) != "float32":
            return call
        shape = [int(extent) for extent in call.args[0].ty.shape]
        axes = range(len(shape))[::-1] if call.attrs.axes is None else [int(axis) % len(shape) for axis in call.attrs.axes]
        function = permutation(shape, list(axes), lanes)
        if function is None:
            return call
        return relax.call_tir(builder.add_func(function, "permutation"), [call.args[0]], out_ty=call.ty)

    return rewritten(module, rewrite)


def permutation(shape, axes, lanes):
    """A PrimFunc that is ``numpy.transpose(data, axes)`` of float32; None where the same axis stays last, or one of the two is short.

    The last block along an axis that blocks do not divide begins earlier, and writes what another one writes as well.
    """
    from tvm import ir, s_tir, tirx

    read, written = len(shape) - 1, axes[-1]  # the axes that are contiguous: in the data, in the result
    side = 1 << (min(lanes, shape[read], shape[written]).bit_length() - 1)
    if read == written or side < SMALLEST:
        return None
    data = tirx.decl_buffer(shape, "float32", "data")
    result = tirx.decl_buffer([shape[axis] for axis in axes], "float32", "permuted")
    # The result is written from one end to the other; but where its last axes are the two of the blocks, data is read along its own.
    order = [*axes[:-2], *((written, read) if axes[-2] == read else axes[-2:])]
    extents = {axis: -(-shape[axis] // side) if axis in (read, written) else shape[axis] for axis in order}
    variables = {axis: tirx.Var(f"v{axis}", "int64") for axis in order}
    start = {axis: _start(variables[axis], shape[axis], side) if axis in (read, written) else variables[axis] for axis in order}
    ranges = [ir.Range.from_min_extent(start[axis], side if axis in (read, written) else 1) for axis in range(len(shape))]

    def along(vector, other, place, order):
        """The indices of vector number ``place`` along an axis, in a block."""
        of = {**start, vector: tirx.Ramp(start[vector], 1, side), other: start[other] + place}
        return [of[axis] for axis in order]

    vectors, statements = _transposed(
        [tirx.BufferLoad(data, along(read, written, place, range(len(shape)))) for place in range(side)]
    )
    for place, vector in enumerate(vectors):
        statements.append(tirx.BufferStore(result, vector, along(written, read, place, axes)))
    block = s_tir.SBlock(
        [
            tirx.IterVar(ir.Range(0, tirx.const(extents[axis], "int64")), variables[axis], tirx.IterVar.DataPar)
            for axis in order
        ],
        [tirx.BufferRegion(data, ranges)],
        [tirx.BufferRegion(result, [ranges[axis] for axis in axes])],
        "permuted",
        tirx.SeqStmt(statements),
        annotations={"schedule_rule": "None"},
    )
    loops = {axis: tirx.Var(f"i{axis}", "int64") for axis in order}
    body = s_tir.SBlockRealize([loops[axis] for axis in order], True, block)
    for axis in reversed(order):
        # A loop with an annotation is not vectorised: MetaSchedule would, and TVM cannot vectorise vectors.
        kept = KEPT_SERIAL if axis == order[-1] else None
        loop, first, extent = loops[axis], tirx.const(0, "int64"), tirx.const(extents[axis], "int64")
        body = tirx.For(loop, first, extent, tirx.ForKind.SERIAL, body, annotations=kept)
    function = tirx.PrimFunc([data, result], s_tir.SBlockRealize([], True, s_tir.SBlock([], [], [], "root", body)))
    return function.with_attr({"s_tir": True, "tirx.noalias": True, "op_pattern": OPAQUE, "estimated_flops": 0})


def _start(number, extent, side):
    """Where a block begins."""
    from tvm import tirx

    return tirx.min(number * side, extent - side) if extent % side else number * side


def _transposed(rows):
    """The columns of a square block, given its rows, expressions of vectors; and the statements that compute them."""
    from tvm import tirx

    side, statements = len(rows), []

    def kept(name, value):
        variable = tirx.Var(name, f"float32x{side}")
        statements.append(tirx.Bind(variable, value))
        return variable

    vectors = [kept(f"row{place}", row) for place, row in enumerate(rows)]
    bit = side // 2
    while bit:  # two vectors whose numbers differ in a bit exchange the elements whose places have it as the vector's has not
        low = [place + (side - bit if place & bit else 0) for place in range(side)]
        high = [place + (side if place & bit else bit) for place in range(side)]
        exchanged = []
        for number in range(side):
            two = [vectors[number & ~bit], vectors[number | bit]]
            taken = [tirx.const(place, "int32") for place in (high if number & bit else low)]
            exchanged.append(kept(f"bit{bit}_{number}", tirx.Shuffle(two, taken)))
        vectors, bit = exchanged, bit // 2
    return vectors, statements
