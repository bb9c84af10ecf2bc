"""Weights packed for vectors: what a register tile reads of them lies in a row. TVM is imported inside functions only.

Weights (..., in, out) become (out / block, ..., in, block). A tile of so many outputs reads its weights from one end to the other,
which is what memory is fast at; otherwise rows that are pages apart share lines of the cache. Where outputs are too few to fill half a
vector, vectors are of input channels: weights become (out, ..., in / lanes, lanes), and sums of each lane are added up at the end.
"""

from .rewrite import ELEMENTWISE_AFTER, called, rewritten


def block_of(outputs, lanes):
    """How many outputs lie side by side: two vectors of ``lanes``, or one; None where neither divides them."""
    return next((block for block in (2 * lanes, lanes) if block and outputs % block == 0), None)


def is_few(outputs, lanes):
    """Whether they do not fill half a vector."""
    return 2 * outputs < lanes


def is_narrow(inputs, outputs, lanes):
    """Whether vectors are of input channels."""
    return is_few(outputs, lanes) and inputs % lanes == 0


def packed(module, lanes):
    """A model whose convolutions, channels last and without groups, and products with constant weights read them packed."""

    def rewrite(call, name, builder):
        if name not in _CONVOLUTIONS and name != "relax.matmul":
            return call
        data, weight = call.args
        if not hasattr(weight, "value") or not str(weight.ty.dtype) == str(data.ty.dtype) == "float32":
            return call
        *_, inputs, outputs = (int(extent) for extent in weight.ty.shape)
        narrow, block = is_narrow(inputs, outputs, lanes), block_of(outputs, lanes)
        if name == "relax.matmul":
            if block is None or len(weight.ty.shape) != 2:
                return call
            return builder.call_te(_product, data, _pack(weight.value.numpy(), block), primfunc_name_hint="matmul")
        attributes, hint = call.attrs, name.rpartition(".")[2]
        kernel_layout, groups = str(attributes.kernel_layout), int(attributes.groups)
        if kernel_layout != _CONVOLUTIONS[name] or groups != 1 or (block is None and not narrow):
            return call
        numbers = [[int(each) for each in given] for given in (attributes.strides, attributes.padding, attributes.dilation)]
        image, outputs = ([int(extent) for extent in list(ty.shape)[1:-1]] for ty in (data.ty, call.ty))
        met, numbers[1] = that_meet(image, outputs, weight.value.numpy(), *numbers)
        weight = _in_vectors(met, lanes) if narrow else _pack(met, block)
        pattern = {"op_pattern": ELEMENTWISE_AFTER} if narrow else None
        before = channels_first(builder, data) if inputs < lanes else None
        given = data if before is None else before, weight, *numbers, before is not None, narrow, hint
        return builder.call_te(_convolution, *given, primfunc_name_hint=hint, primfunc_attrs=pattern)

    return rewritten(module, rewrite)


def channels_first(builder, data):
    """What ``data`` stands for with its channels first, where it is that laid out channels last; else None."""
    call = called(builder, data, "relax.permute_dims")
    last = call is not None and [int(axis) for axis in call.attrs.axes or ()] == [0, *range(2, len(call.ty.shape)), 1]
    return call.args[0] if last else None


_CONVOLUTIONS = {"relax.nn.conv1d": "WIO", "relax.nn.conv2d": "HWIO", "relax.nn.conv3d": "DHWIO"}


def that_meet(image, outputs, kernel, strides, padding, dilation):
    """A convolution's kernel (*taps, in, out) without the outer taps that meet padding alone, as in an image smaller than the kernel;
    and the padding that is left."""
    dims, padding = len(strides), list(padding)
    for axis, (extent, count, stride, dilate) in enumerate(zip(image, outputs, strides, dilation)):
        before, after, taps = padding[axis], padding[dims + axis], kernel.shape[axis]
        reads = [range(tap * dilate - before, tap * dilate - before + count * stride, stride) for tap in range(taps)]
        met = [tap for tap, positions in enumerate(reads) if any(0 <= position < extent for position in positions)] or [0]
        first, beyond = min(met[0], before // dilate), min(taps - 1 - met[-1], after // dilate)
        kernel = kernel[(slice(None),) * axis + (slice(first, taps - beyond),)]
        padding[axis], padding[dims + axis] = before - first * dilate, after - beyond * dilate
    return kernel, padding


def _pack(array, block):
    import numpy as np
    from tvm import relax

    array = array.reshape(*array.shape[:-1], array.shape[-1] // block, block)
    return relax.const(np.ascontiguousarray(np.moveaxis(array, -2, 0)))


def _in_vectors(array, lanes):
    import numpy as np
    from tvm import relax

    array = np.moveaxis(array, -1, 0)
    return relax.const(np.ascontiguousarray(array.reshape(*array.shape[:-1], -1, lanes)))


def _convolution(data, weight, strides, padding, dilation, first, narrow, name):
    """data (n, *image, in), or (n, in, *image) where channels are ``first``; weight (out / block, *kernel, in, block) or
    (out, *kernel, in / lanes, lanes); output (n, *image, out)."""
    from tvm import te, topi

    dims = len(strides)
    _, *kernel, _, _ = weight.shape
    before, after = padding[:dims], padding[dims:]
    reach = [dilate * (int(taps) - 1) + 1 for dilate, taps in zip(dilation, kernel)]
    image = [
        (int(extent) + low + high - far) // stride + 1
        for extent, low, high, far, stride in zip(data.shape[1 + first :], before, after, reach, strides)
    ]
    if any(padding):
        around = ([0, 0, *each] if first else [0, *each, 0] for each in (before, after))
        data = topi.nn.pad(data, *around, name="pad")
    taps = [te.reduce_axis((0, extent), name=f"r{axis}") for axis, extent in zip("zyx"[-dims:], kernel)]

    def term(n, position, channel, outer, step, inner):
        read = [p * stride + tap * dilate for p, stride, tap, dilate in zip(position, strides, taps, dilation)]
        return data[(n, channel, *read) if first else (n, *read, channel)] * weight[(outer, *taps, step, inner)]

    axes = {"n": data.shape[0], **dict(zip("zyx"[-dims:], image))}
    return summed(axes, weight, taps, term, narrow, name)


def summed(shape, weight, taps, term, narrow, name):
    """The outputs (*shape, out) of sums over ``taps`` and input channels; ``shape`` has the axes' names, the batch's first.

    ``term(n, position, channel, outer, step, inner)`` is what is summed: a channel of the data times what the weight has in the first
    and last two of its axes.
    """
    from tvm import te

    outer, steps, inner = weight.shape[0], weight.shape[-2], weight.shape[-1]
    rc, lane = te.reduce_axis((0, steps), name="rc"), te.reduce_axis((0, inner), name="lane")
    names, axes = [*shape, "f"], [*taps, rc]

    def packed_sum(n, *place):
        *position, f = place
        return te.sum(term(n, position, rc, f // inner, rc, f % inner), axis=axes)

    def lane_sum(n, *place):
        *position, f, part = place
        return te.sum(term(n, position, rc * inner + part, f, rc, part), axis=axes)

    if not narrow:
        return te.compute((*shape.values(), outer * inner), packed_sum, name=name, varargs_names=names[1:])
    lanes = te.compute((*shape.values(), outer, inner), lane_sum, name=f"{name}_lanes", varargs_names=[*names[1:], "lane"])
    return te.compute(
        (*shape.values(), outer), lambda *place: te.sum(lanes[(*place, lane)], axis=[lane]), name=name, varargs_names=names
    )


def _product(data, weight):
    """data (..., k), weight (m / block, k, block), output (..., m)."""
    from tvm import te

    blocks, inner, block = weight.shape
    k = te.reduce_axis((0, inner), name="k")

    def element(*place):
        *row, j = place
        return te.sum(data[(*row, k)] * weight[j // block, k, j % block], axis=k)

    rows = "abcdefgh"[: len(data.shape) - 2]
    return te.compute((*data.shape[:-1], blocks * block), element, name="matmul", varargs_names=[*rows, "i", "j"])
