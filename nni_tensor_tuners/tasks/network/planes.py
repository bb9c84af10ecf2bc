"""Convolutions of images that lie channels first, plane by plane. TVM is imported inside functions only.

Channels last are the better layout, but to lay an image out so, and back, takes longer than its depthwise convolution, and a good
part of the time of a convolution of few channels. Here a plane is read row by row into a buffer that has its zeros around it,
strides taken apart, so that vectors run along the rows.
"""

from .pack import channels_first, is_few
from .permuted import KEPT_SERIAL
from .rewrite import called, rewritten
from .transposed import by_rests, met

TO_CHANNELS_FIRST = [0, 3, 1, 2]
# Elements of the shortest vector, and of the shortest row that is worth one.
SHORTEST = 4
# Where all channels are summed, what the vectors at the ends of the rows compute for nothing: not more than this part.
WASTED = 0.1


def in_planes(module, lanes):
    """A model some of whose convolutions are computed so where they lie between two changes of layout, and nothing else does.

    They are the depthwise ones, those of fewer channels than ``lanes``, and transposed ones to few.
    """
    from tvm import relax

    def rewrite(call, name, builder):
        if name != "relax.permute_dims" or _axes(call) != TO_CHANNELS_FIRST:
            return call
        convolution = called(builder, call.args[0], "relax.nn.conv2d", "relax.nn.conv2d_transpose")
        data = None if convolution is None else channels_first(builder, convolution.args[0])
        if data is None or min(lanes, *_shape(data)[3:], *_shape(call)[3:]) < SHORTEST or not _is_constant(convolution):
            return call
        made = _transposed if convolution.op.name.endswith("transpose") else _straight
        found = made(convolution, _shape(data), _shape(call), lanes)
        if found is None:
            return call
        name, function, kernel = found
        return relax.call_tir(builder.add_func(function, name), [data, relax.const(kernel)], out_ty=call.ty)

    return rewritten(module, rewrite)


def _straight(call, shape, output, lanes):
    """The name of a convolution's program, the program and its weights; None of another convolution than these."""
    import numpy as np

    channels, groups = shape[1], int(call.attrs.groups)
    few = groups == 1 and channels < lanes and _fills_vectors(output[-1], lanes)
    if not few and not groups == channels > 1:
        return None
    kernel = call.args[1].value.numpy()
    kernel = np.ascontiguousarray(np.moveaxis(kernel, 2, 0) if few else np.moveaxis(kernel[:, :, 0], -1, 0))
    numbers = (_numbers(call, each) for each in ("strides", "padding", "dilation"))
    return "conv2d" if few else "depthwise", by_rows(shape, kernel.shape, *numbers, lanes), kernel


def _transposed(call, shape, output, lanes):
    """As `_straight`, of a transposed convolution."""
    strides, padding = _numbers(call, "strides"), _numbers(call, "padding")[:2]
    wide = -(-output[-1] // strides[1])
    if int(call.attrs.groups) > 1 or max(_numbers(call, "dilation")) > 1 or not is_few(output[1], lanes):
        return None
    if wide < SHORTEST or not _fills_vectors(wide, lanes):
        return None
    kernel = by_rests(call.args[1].value.numpy(), strides, padding)
    return "conv2d_transpose", transposed_by_rows(shape, kernel.shape, output, strides, padding, lanes), kernel


def _axes(call):
    return [int(each) for each in call.attrs.axes or ()]


def _shape(expression):
    return [int(extent) for extent in expression.ty.shape]


def _numbers(call, name):
    return [int(each) for each in getattr(call.attrs, name)]


def _is_constant(call):
    """Whether a convolution, channels last, is of float32 by constant weights."""
    layouts = str(call.attrs.data_layout), str(call.attrs.kernel_layout)
    constant = hasattr(call.args[1], "value") and str(call.args[1].ty.dtype) == str(call.ty.dtype) == "float32"
    return constant and layouts == ("NHWC", "HWIO")


def _in_vectors(wide, lanes):
    """The elements of a row of the output, rounded up to those of the vectors that it is computed in."""
    vector = min(lanes, 1 << (wide - 1).bit_length())
    return -(-wide // vector) * vector


def _fills_vectors(wide, lanes):
    return _in_vectors(wide, lanes) - wide <= WASTED * wide


def by_rows(shape, weights, strides, padding, dilation, lanes):
    """A PrimFunc: data (n, c, y, x), output (n, filters, y, x).

    ``weights`` is the shape of a third argument: (filters, ky, kx) where filter f is of channel f // (filters / c) alone,
    (c, ky, kx, filters) where each is of all channels.
    """
    from tvm import te

    n, channels, high, wide = shape
    whole = len(weights) == 4
    filters, kernel = weights[3 if whole else 0], weights[1:3]
    (down, across), (top, left, bottom, right) = strides, padding
    reach = [dilate * (taps - 1) for dilate, taps in zip(dilation, kernel)]
    out_high, out_wide = (high + top + bottom - reach[0] - 1) // down + 1, (wide + left + right - reach[1] - 1) // across + 1
    computed = _in_vectors(out_wide, lanes)
    data = te.placeholder(shape, name="data")
    weight = te.placeholder(weights, name="weight")
    # Of a row of the image: its elements by their number's remainder by the stride, zeros before and after.
    padded = (n, channels, (out_high - 1) * down + reach[0] + 1, across, computed + -(-reach[1] // across))
    rows = te.compute(padded, lambda n, c, *_: data[n, c, 0, 0], name="rows")
    ry, rx = te.reduce_axis((0, kernel[0]), name="ry"), te.reduce_axis((0, kernel[1]), name="rx")
    rc = te.reduce_axis((0, channels), name="rc")

    def term(n, f, y, x):
        step, channel = rx * dilation[1], rc if whole else f // (filters // channels)
        read = rows[n, channel, y * down + ry * dilation[0], step % across, x + step // across]
        return read * weight[(rc, ry, rx, f) if whole else (f, ry, rx)]

    conv = te.compute(
        (n, filters, out_high, computed),
        lambda *place: te.sum(term(*place), axis=[ry, rx, rc] if whole else [ry, rx]),
        name="conv",
        varargs_names=[*"nfyx"],
    )
    result = te.compute((n, filters, out_high, out_wide), lambda *place: conv[place], name="result", varargs_names=[*"nfyx"])
    flop = 2 * n * filters * out_high * out_wide * kernel[0] * kernel[1] * (channels if whole else 1)
    return _program(data, weight, result, (top, left), lanes, flop)


def transposed_by_rows(shape, weights, output, strides, padding, lanes):
    """A PrimFunc of a transposed convolution: data (n, c, y, x), weights as `by_rests` makes them, output (n, filters, y, x).

    Outputs are computed by their remainders by the strides: along a row of one remainder vectors read what lies side by side.
    """
    from tvm import te

    (n, channels, high, wide), (*_, taps_down, taps_across, _, filters) = shape, weights
    apart = [-(-extent // stride) for extent, stride in zip(output[2:], strides)]
    computed = _in_vectors(apart[1], lanes)
    low = taps_down - 1, taps_across - 1
    most = [first + (stride - 1 + pad) // stride for first, stride, pad in zip(low, strides, padding)]
    data = te.placeholder(shape, name="data")
    weight = te.placeholder(weights, name="weight")
    padded = n, channels, max(apart[0] + most[0], low[0] + high), 1, max(computed + most[1], low[1] + wide)
    rows = te.compute(padded, lambda n, c, *_: data[n, c, 0, 0], name="rows")
    ry, rx = te.reduce_axis((0, taps_down), name="ry"), te.reduce_axis((0, taps_across), name="rx")
    rc = te.reduce_axis((0, channels), name="rc")

    def term(n, down, across, f, y, x):
        row, column = met(down, padding[0], strides[0]) + y + low[0] - ry, met(across, padding[1], strides[1]) + x + low[1] - rx
        return rows[n, rc, row, 0, column] * weight[down, across, ry, rx, rc, f]

    conv = te.compute(
        (n, *strides, filters, apart[0], computed),
        lambda *place: te.sum(term(*place), axis=[ry, rx, rc]),
        name="conv",
        varargs_names=["n", "y_rest", "x_rest", *"fyx"],
    )
    down, across = strides
    result = te.compute(output, lambda n, f, y, x: conv[n, y % down, x % across, f, y // down, x // across], name="result")
    flop = 2 * n * filters * output[2] * output[3] * taps_down * taps_across * channels
    return _program(data, weight, result, low, lanes, flop)


def _program(data, weight, result, before, lanes, flop):
    """A PrimFunc of what is computed of "rows", which are read of the data; ``before`` is of zeros, down and across."""
    from tvm import s_tir, te, tirx

    function = te.create_prim_func([data, weight, result])
    root = function.body.block
    (held,) = [each for each in root.alloc_buffers if each.name == "rows"]
    reading = _reading(function.params[0], held, before, lanes)
    body = tirx.SeqStmt([reading, *root.body.seq[1:]])
    root = s_tir.SBlock([], [], [], "root", body, alloc_buffers=root.alloc_buffers)
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
