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

    Those with groups or dilation, or weights that are not constant, are given back to TVM, channels first.
    """
    import numpy as np
    from tvm import relax

    def rewrite(call, name, builder):
        if name not in LAYOUTS or [str(call.attrs.data_layout), str(call.attrs.kernel_layout)] != LAYOUTS[name]:
            return call
        attributes, (data, weight) = call.attrs, call.args
        strides, padding, dilation = (
            [int(each) for each in given] for given in (attributes.strides, attributes.padding, attributes.dilation)
        )
        dims, hint = len(strides), name.rpartition(".")[2]
        if int(attributes.groups) != 1 or any(each != 1 for each in dilation) or not hasattr(weight, "value"):
            return _channels_first(call, name, builder, dims)
        kernel = by_rests(weight.value.numpy(), strides, padding)
        *_, inner, outer = kernel.shape
        if narrow := is_narrow(inner, outer, lanes):
            kernel = np.moveaxis(kernel, -1, 0)
            kernel = kernel.reshape(*kernel.shape[:-1], inner // lanes, lanes)
        else:
            block = block_of(outer, lanes) or outer
            kernel = np.moveaxis(kernel.reshape(*kernel.shape[:-1], outer // block, block), -2, 0)
        weight = relax.const(np.ascontiguousarray(kernel))
        shape = [int(extent) for extent in call.ty.shape][1 : 1 + dims]
        pattern = {"op_pattern": ELEMENTWISE_AFTER} if narrow else None
        given = data, weight, shape, strides, padding[:dims], narrow, hint
        return builder.call_te(_sum, *given, primfunc_name_hint=hint, primfunc_attrs=pattern)

    return rewritten(module, rewrite)


def by_rests(kernel, strides, padding):
    """A kernel (*image, in, out) as (*rests, *taps, in, out): of the outputs of a remainder by the stride, the taps that they read."""
    import numpy as np

    dims = len(strides)
    taps = [-(-extent // stride) for extent, stride in zip(kernel.shape, strides)]
    missing = [(0, count * stride - extent) for count, stride, extent in zip(taps, strides, kernel.shape)]
    kernel = np.pad(kernel, [*missing, (0, 0), (0, 0)])
    kernel = kernel.reshape(*(each for pair in zip(taps, strides) for each in pair), *kernel.shape[dims:])  # k = rest + s tap
    kernel = kernel.transpose(*range(1, 2 * dims, 2), *range(0, 2 * dims, 2), 2 * dims, 2 * dims + 1)
    for axis, (stride, pad) in enumerate(zip(strides, padding)):
        kernel = kernel.take([(rest + pad) % stride for rest in range(stride)], axis)
    return np.ascontiguousarray(kernel)


def _sum(data, weight, shape, strides, padding, narrow, name):
    """data (n, *image, in), weight as `pack`'s, (*rests, *taps) of `by_rests` in place of the kernel's axes, output (n, *shape, out)."""
    from tvm import te, topi

    dims, names = len(shape), "zyx"[-len(shape) :]
    counts = [int(extent) for extent in weight.shape[1 + dims : 1 + 2 * dims]]
    apart = [-(-extent // stride) for extent, stride in zip(shape, strides)]
    before = [count - 1 for count in counts]
    after = [
        max(0, number + (stride - 1 + pad) // stride - int(had))
        for number, pad, stride, had in zip(apart, padding, strides, data.shape[1 : 1 + dims])
    ]
    if any((*before, *after)):
        data = topi.nn.pad(data, [0, *before, 0], [0, *after, 0], name="pad")
    taps = [te.reduce_axis((0, count), name=f"r{axis}") for axis, count in zip(names, counts)]

    def by_remainder(position):
        return [p % stride for p, stride in zip(position, strides)], [p // stride for p, stride in zip(position, strides)]

    def term(n, position, channel, outer, step, inner):
        rests, position = by_remainder(position) if narrow else (position[:dims], position[dims:])
        first = map(met, rests, padding, strides)
        read = [p + each - tap + low for p, each, tap, low in zip(position, first, taps, before)]
        return data[(n, *read, channel)] * weight[(outer, *rests, *taps, step, inner)]

    if narrow:
        return summed({"n": data.shape[0], **dict(zip(names, shape))}, weight, taps, term, narrow, name)
    # Those of one remainder read the same part of the kernel, one after the other.
    axes = {"n": data.shape[0], **{f"{axis}_rest": each for axis, each in zip(names, strides)}, **dict(zip(names, apart))}
    found = summed(axes, weight, taps, term, narrow, name)

    def together(n, *place):
        rests, position = by_remainder(place[:-1])
        return found[(n, *rests, *position, place[-1])]

    together_shape = (data.shape[0], *shape, found.shape[-1])
    return te.compute(together_shape, together, name=f"{name}_together", varargs_names=[*names, "f"])


def met(rest, pad, stride):
    """(rest + pad) // stride of a remainder by the stride, without a division, which TVM gets wrong where loops are fused."""
    from tvm import te

    whole, more = divmod(pad, stride)
    if more and stride > 2:
        return whole + te.min(te.max(rest - (stride - more - 1), 0), 1)
    return whole + rest * more


def _channels_first(call, name, builder, dims):
    from tvm import relax

    op, image = relax.op, range(1, 1 + dims)
    data = builder.emit(op.permute_dims(call.args[0], [0, 1 + dims, *image]))
    weight = builder.emit(op.permute_dims(call.args[1], [dims, 1 + dims, *range(dims)]))
    keep = ("strides", "padding", "output_padding", "dilation", "groups")
    attributes = {key: getattr(call.attrs, key) for key in keep}
    result = builder.emit(getattr(op.nn, name.rpartition(".")[2])(data, weight, **attributes))
    return op.permute_dims(result, [0, *range(2, 2 + dims), 1])
