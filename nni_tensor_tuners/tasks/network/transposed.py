"""Transposed convolutions without multiplications by zero. TVM is imported inside functions only.

Of stride s along an axis, output y reads the kernel's taps k with (y + padding - k) % s = 0 alone: tap (y + padding) % s + s t
meets input (y + padding) // s - t, for t = 0, 1, ... So the kernel is sorted by k % s, and an output reads 1 / s of it along each axis.
"""

from .pack import block_of, is_narrow, summed
from .rewrite import ELEMENTWISE_AFTER, rewritten

# Layouts of data and kernel.
LAYOUTS = {
    "relax.nn.conv1d_transpose": ["NWC", "WIO"],
    "relax.nn.conv2d_transpose": ["NHWC", "HWIO"],
    "relax.nn.conv3d_transpose": ["NDHWC", "DHWIO"],
}


def without_zeros(module, lanes):
    """A model, channels last, whose transposed convolutions are sums over the taps that meet an input; weights packed as `pack`'s.

    Those with groups or dilation are given back to TVM, channels first.
    """
    from tvm import relax

    op = relax.op

    def rewrite(call, name, builder):
        if name not in LAYOUTS or [str(call.attrs.data_layout), str(call.attrs.kernel_layout)] != LAYOUTS[name]:
            return call
        attributes, (data, weight) = call.attrs, call.args
        strides, padding, dilation = (
            [int(each) for each in given] for given in (attributes.strides, attributes.padding, attributes.dilation)
        )
        dims, hint = len(strides), name.rpartition(".")[2]
        if int(attributes.groups) != 1 or any(each != 1 for each in dilation):
            return _channels_first(call, name, builder, dims)
        *extents, inner, outer = (int(extent) for extent in weight.ty.shape)
        taps = [-(-extent // stride) for extent, stride in zip(extents, strides)]
        narrow = is_narrow(inner, outer, lanes)
        missing = [each for count, stride, extent in zip(taps, strides, extents) for each in (0, count * stride - extent)]
        weight = builder.emit(op.nn.pad(weight, [*missing, 0, 0, 0, 0]))
        apart = [each for pair in zip(taps, strides) for each in pair]  # tap t and rest r of k = r + s t
        rests, steps, last = range(1, 2 * dims, 2), range(0, 2 * dims, 2), 2 * dims
        if narrow:
            weight = builder.emit(op.reshape(weight, [*apart, inner // lanes, lanes, outer]))
            order = [last + 2, *rests, *steps, last, last + 1]
        else:
            block = block_of(outer, lanes) or outer
            weight = builder.emit(op.reshape(weight, [*apart, inner, outer // block, block]))
            order = [last + 1, *rests, *steps, last, last + 2]
        weight = builder.emit(op.permute_dims(weight, order))
        shape = [int(extent) for extent in call.ty.shape][1 : 1 + dims]
        pattern = {"op_pattern": ELEMENTWISE_AFTER} if narrow else None
        given = data, weight, shape, strides, padding[:dims], narrow, hint
        return builder.call_te(_sum, *given, primfunc_name_hint=hint, primfunc_attrs=pattern)

    return rewritten(module, rewrite)


def _sum(data, weight, shape, strides, padding, narrow, name):
    """data (n, *image, in), weight as `pack`'s, (*rests, *taps) in place of the kernel's axes, output (n, *shape, out)."""
    from tvm import te, topi

    dims = len(shape)
    counts = [int(extent) for extent in weight.shape[1 + dims : 1 + 2 * dims]]
    before = [count - 1 for count in counts]
    after = [
        max(0, (extent - 1 + pad) // stride - int(had) + 1)
        for extent, pad, stride, had in zip(shape, padding, strides, data.shape[1 : 1 + dims])
    ]
    if any((*before, *after)):
        data = topi.nn.pad(data, [0, *before, 0], [0, *after, 0], name="pad")
    taps = [te.reduce_axis((0, count), name=f"r{axis}") for axis, count in zip("zyx"[-dims:], counts)]

    def term(n, position, channel, outer, step, inner):
        shifted = [p + pad for p, pad in zip(position, padding)]
        read = [p // stride - tap + low for p, stride, tap, low in zip(shifted, strides, taps, before)]
        rests = [p % stride for p, stride in zip(shifted, strides)]
        return data[(n, *read, channel)] * weight[(outer, *rests, *taps, step, inner)]

    return summed((data.shape[0], *shape), weight, taps, term, narrow, name)


def _channels_first(call, name, builder, dims):
    from tvm import relax

    op, image = relax.op, range(1, 1 + dims)
    data = builder.emit(op.permute_dims(call.args[0], [0, 1 + dims, *image]))
    weight = builder.emit(op.permute_dims(call.args[1], [dims, 1 + dims, *range(dims)]))
    keep = ("strides", "padding", "output_padding", "dilation", "groups")
    attributes = {key: getattr(call.attrs, key) for key in keep}
    result = builder.emit(getattr(op.nn, name.rpartition(".")[2])(data, weight, **attributes))
    return op.permute_dims(result, [0, *range(2, 2 + dims), 1])
