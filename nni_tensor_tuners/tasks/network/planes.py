"""Depthwise convolutions of images that lie channels first, plane by plane. TVM is imported inside functions only.

Channels last are the better layout, but to lay a small image out so, and back, takes longer than its depthwise convolution. Here a
plane is read row by row into a buffer that has its zeros around it, strides taken apart, so that vectors run along the rows.
"""

from .permuted import KEPT_SERIAL
from .rewrite import rewritten

TO_CHANNELS_LAST, TO_CHANNELS_FIRST = [0, 2, 3, 1], [0, 3, 1, 2]
# Elements of the shortest vector, and of the shortest row that is worth one.
SHORTEST = 4


def in_planes(module, lanes):
    """A model whose depthwise convolutions are computed so where they lie between two changes of layout, and nothing else does."""
    import numpy as np
    from tvm import relax

    def permuted(builder, value, axes):
        """What a variable stands for with its axes in another order; None where it stands for something else."""
        call = _called(builder, value, "relax.permute_dims")
        return call.args[0] if call is not None and _axes(call) == axes else None

    def rewrite(call, name, builder):
        if name != "relax.permute_dims" or _axes(call) != TO_CHANNELS_FIRST:
            return call
        convolution = _called(builder, call.args[0], "relax.nn.conv2d")
        data = None if convolution is None else permuted(builder, convolution.args[0], TO_CHANNELS_LAST)
        if data is None or not _is_depthwise(convolution) or min(lanes, *_shape(data)[3:], *_shape(call)[3:]) < SHORTEST:
            return call
        kernel = np.moveaxis(convolution.args[1].value.numpy()[:, :, 0], -1, 0)
        numbers = ([int(each) for each in convolution.attrs[name]] for name in ("strides", "padding", "dilation"))
        function = depthwise(_shape(data), *kernel.shape[:1], kernel.shape[1:], *numbers, lanes)
        weight = relax.const(np.ascontiguousarray(kernel))
        return relax.call_tir(builder.add_func(function, "depthwise"), [data, weight], out_ty=call.ty)

    return rewritten(module, rewrite)


def _called(builder, value, name):
    """The call of an operator that a variable stands for; None where it stands for something else."""
    call = builder.lookup_binding(value) if hasattr(value, "name") else None
    return call if getattr(getattr(call, "op", None), "name", "") == name else None


def _axes(call):
    return [int(each) for each in call.attrs.axes or ()]


def _shape(expression):
    return [int(extent) for extent in expression.ty.shape]


def _is_depthwise(call):
    """Whether a convolution, channels last, of float32 by constant weights has a group for each channel."""
    if not hasattr(call.args[1], "value") or not str(call.args[1].ty.dtype) == str(call.ty.dtype) == "float32":
        return False
    layouts = str(call.attrs.data_layout), str(call.attrs.kernel_layout)
    return layouts == ("NHWC", "HWIO") and int(call.attrs.groups) == _shape(call.args[0])[-1] > 1


def depthwise(shape, filters, kernel, strides, padding, dilation, lanes):
    """A PrimFunc: data (n, c, y, x), weight (filters, *kernel), output (n, filters, y, x); filter f is of channel f // (filters / c)."""
    from tvm import s_tir, te, tirx

    n, channels, high, wide = shape
    (down, across), (top, left, bottom, right) = strides, padding
    reach = [dilate * (taps - 1) for dilate, taps in zip(dilation, kernel)]
    out_high, out_wide = (high + top + bottom - reach[0] - 1) // down + 1, (wide + left + right - reach[1] - 1) // across + 1
    vector = min(lanes, 1 << (out_wide - 1).bit_length())
    computed = -(-out_wide // vector) * vector
    data = te.placeholder(shape, name="data")
    weight = te.placeholder((filters, *kernel), name="weight")
    # Of a row of the image: its elements by their number's remainder by the stride, zeros before and after.
    padded = (n, channels, (out_high - 1) * down + reach[0] + 1, across, computed + -(-reach[1] // across))
    rows = te.compute(padded, lambda n, c, *_: data[n, c, 0, 0], name="rows")
    ry, rx = te.reduce_axis((0, kernel[0]), name="ry"), te.reduce_axis((0, kernel[1]), name="rx")

    def term(n, f, y, x):
        step = rx * dilation[1]
        read = rows[n, f // (filters // channels), y * down + ry * dilation[0], step % across, x + step // across]
        return read * weight[f, ry, rx]

    conv = te.compute(
        (n, filters, out_high, computed),
        lambda *place: te.sum(term(*place), axis=[ry, rx]),
        name="conv",
        varargs_names=[*"nfyx"],
    )
    result = te.compute((n, filters, out_high, out_wide), lambda *place: conv[place], name="depthwise", varargs_names=[*"nfyx"])
    function = te.create_prim_func([data, weight, result])
    root = function.body.block
    (held,) = [each for each in root.alloc_buffers if each.name == "rows"]
    reading = _reading(function.params[0], held, (top, left), lanes)
    body = tirx.SeqStmt([reading, *root.body.seq[1:]])
    root = s_tir.SBlock([], [], [], "root", body, alloc_buffers=root.alloc_buffers)
    flop = 2 * n * filters * out_high * out_wide * kernel[0] * kernel[1]
    function = function.with_body(s_tir.SBlockRealize([], True, root)).without_attr("global_symbol")
    return function.with_attr("estimated_flops", flop)


def _reading(data, rows, before, lanes):
    """The loops that write the rows, one at a time, in vectors of up to ``lanes``; ``before`` is of zeros, down and across."""
    from tvm import ir, s_tir, tirx

    n, channels, number, strides, length = (int(extent) for extent in rows.shape)
    *_, high, wide = (int(extent) for extent in data.shape)
    top, left = before
    # TVM finds where a block can be computed if each axis of what it writes has a variable; the last two have but one value.
    extents = {"n": n, "c": channels, "r": number, "f": 1, "x": 1}
    variables = [tirx.Var(f"v{name}", "int32") for name in extents]
    *image, row, parts, along = variables

    def stored(value, part, start, count):
        return tirx.BufferStore(rows, value, [*image, row, part, tirx.Ramp(start, 1, count) if count > 1 else start])

    def zeros(part, start, stop):
        """From ``start`` to ``stop``, or a little further on the image's side, which is written after."""
        side = min(lanes, 1 << (length.bit_length() - 1))
        for place in range(start, stop, side):
            yield stored(tirx.Broadcast(tirx.const(0.0, "float32"), side), part, min(place, length - side), side)

    def copied():
        side = min(lanes, 1 << (wide.bit_length() - 1))
        for start in dict.fromkeys([*range(0, wide - side, side), wide - side]):
            vector = tirx.Var(f"row{start}", f"float32x{side}")
            yield tirx.Bind(vector, tirx.BufferLoad(data, [*image, row - top, tirx.Ramp(start, 1, side)]))
            for part in range(strides):
                taken = [lane for lane in range(side) if (start + left + lane) % strides == part]
                if taken:
                    value = vector if strides == 1 else tirx.Shuffle([vector], [tirx.const(lane, "int32") for lane in taken])
                    yield stored(value, part, (start + left + taken[0]) // strides, len(taken))

    around, nothing = [], []
    for part in range(strides):
        first, last = -(-(left - part) // strides), (left + wide - 1 - part) // strides
        around += [*zeros(part, 0, max(first, 0)), *zeros(part, last + 1, length)]
        nothing += zeros(part, 0, length)
    inside = tirx.all(row >= top, row < top + high)
    once = [ir.Range.from_min_extent(each, 1) for each in (*image, row)]
    block = s_tir.SBlock(
        [tirx.IterVar(ir.Range(0, extent), each, tirx.IterVar.DataPar) for extent, each in zip(extents.values(), variables)],
        [tirx.BufferRegion(data, [*once[:2], ir.Range(0, high), ir.Range(0, wide)])],
        [
            tirx.BufferRegion(
                rows,
                [*once, ir.Range.from_min_extent(parts * strides, strides), ir.Range.from_min_extent(along * length, length)],
            )
        ],
        "rows",
        tirx.IfThenElse(inside, tirx.SeqStmt([*around, *copied()]), tirx.SeqStmt(nothing) if nothing[1:] else nothing[0]),
    )
    loops = {name: tirx.Var(name, "int32") for name in extents}
    body = s_tir.SBlockRealize([*loops.values()], True, block)
    for name, loop in reversed(loops.items()):
        kept = KEPT_SERIAL if name == "x" else None
        body = tirx.For(loop, 0, extents[name], tirx.ForKind.SERIAL, body, annotations=kept)
    return body
