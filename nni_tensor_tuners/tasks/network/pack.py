"""Weights packed for vectors: what a register tile reads of them lies in a row. TVM is imported inside functions only.

Weights (..., in, out) become (out / block, ..., in, block). A tile of so many outputs reads its weights from one end to the other,
which is what memory is fast at; otherwise rows that are pages apart share lines of the cache.
"""


from .rewrite import rewritten


def block_of(outputs, lanes):
    """How many outputs lie side by side: two vectors of ``lanes``, or one; None where neither divides them."""
    return next((block for block in (2 * lanes, lanes) if block and outputs % block == 0), None)


def packed(module, lanes):
    """A model whose convolutions, channels last and without groups, and products with constant weights read them packed."""

    def rewrite(call, name, builder):
        if name not in _CONVOLUTIONS and name != "relax.matmul":
            return call
        data, weight = call.args
        if not hasattr(weight, "value") or not str(weight.ty.dtype) == str(data.ty.dtype) == "float32":
            return call
        block = block_of(int(weight.ty.shape[-1]), lanes)
        if block is None:
            return call
        if name == "relax.matmul":
            if len(weight.ty.shape) != 2:
                return call
            return builder.call_te(_product, data, _pack(weight, block), primfunc_name_hint="matmul")
        attributes, hint = call.attrs, name.rpartition(".")[2]
        if str(attributes.kernel_layout) != _CONVOLUTIONS[name] or int(attributes.groups) != 1:
            return call
        numbers = ([int(each) for each in given] for given in (attributes.strides, attributes.padding, attributes.dilation))
        return builder.call_te(_convolution, data, _pack(weight, block), *numbers, hint, primfunc_name_hint=hint)

    return rewritten(module, rewrite)


_CONVOLUTIONS = {"relax.nn.conv1d": "WIO", "relax.nn.conv2d": "HWIO", "relax.nn.conv3d": "DHWIO"}


def _pack(weight, block):
    import numpy as np
    from tvm import relax

    array = weight.value.numpy()
    array = array.reshape(*array.shape[:-1], array.shape[-1] // block, block)
    return relax.const(np.ascontiguousarray(np.moveaxis(array, -2, 0)))


def _convolution(data, weight, strides, padding, dilation, name):
    """data (n, *image, in), weight (out / block, *kernel, in, block), output (n, *image, out)."""
    from tvm import te, topi

    dims = len(strides)
    blocks, *kernel, inner, block = weight.shape
    before, after = padding[:dims], padding[dims:]
    reach = [dilate * (int(taps) - 1) + 1 for dilate, taps in zip(dilation, kernel)]
    image = [
        (int(extent) + low + high - far) // stride + 1
        for extent, low, high, far, stride in zip(data.shape[1 : 1 + dims], before, after, reach, strides)
    ]
    if any(padding):
        data = topi.nn.pad(data, [0, *before, 0], [0, *after, 0], name="pad")
    axes = "zyx"[-dims:]
    taps = [te.reduce_axis((0, extent), name=f"r{axis}") for axis, extent in zip(axes, kernel)]
    rc = te.reduce_axis((0, inner), name="rc")

    def element(n, *place):
        *position, f = place
        read = [p * stride + tap * dilate for p, stride, tap, dilate in zip(position, strides, taps, dilation)]
        return te.sum(data[(n, *read, rc)] * weight[(f // block, *taps, rc, f % block)], axis=[*taps, rc])

    return te.compute((data.shape[0], *image, blocks * block), element, name=name, varargs_names=[*axes, "f"])


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
