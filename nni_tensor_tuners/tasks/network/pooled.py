"""The largest of each window, without padding: a place beyond the image's border stands for the border.

In a window that reaches beyond the border, the border is, too: it counts once more, and the largest stays what it is. So no image with
a margin is made, nor is each element's place compared. TVM is imported inside functions only.
"""

from .rewrite import rewritten

_OPERATORS = ("relax.nn.max_pool1d", "relax.nn.max_pool2d", "relax.nn.max_pool3d")


def at_borders(module):
    """A model whose max_pool operators with padding read the image as it lies.

    Those with dilation, whose windows may miss the border, and those with windows of padding alone stay as they are.
    """

    def rewrite(call, name, builder):
        if name not in _OPERATORS:
            return call
        attributes, (data,) = call.attrs, call.args
        taps, strides, padding, dilation = (
            [int(each) for each in given]
            for given in (attributes.pool_size, attributes.strides, attributes.padding, attributes.dilation)
        )
        image = [axis for axis, letter in enumerate(str(attributes.layout)) if letter in "DHW"]
        shape, outputs = ([int(extent) for extent in ty.shape] for ty in (data.ty, call.ty))
        windows = [
            range(-before, -before + outputs[axis] * stride, stride) for axis, before, stride in zip(image, padding, strides)
        ]
        met = all(each[0] + count > 0 and each[-1] < shape[axis] for axis, each, count in zip(image, windows, taps))
        if not any(padding) or any(each != 1 for each in dilation) or not met:
            return call
        given = data, outputs, image, taps, strides, padding
        return builder.call_te(_largest, *given, primfunc_name_hint=name.rpartition(".")[2])

    return rewritten(module, rewrite)


def _largest(data, outputs, image, taps, strides, padding):
    """``image``: the axes that windows have; the others lie in the order given."""
    from tvm import te

    windows = [te.reduce_axis((0, count), name=f"r{axis}") for axis, count in zip(image, taps)]

    def element(*place):
        read = list(place)
        for axis, window, stride, before in zip(image, windows, strides, padding):
            read[axis] = te.max(te.min(place[axis] * stride + window - before, data.shape[axis] - 1), 0)
        return te.max(data[tuple(read)], axis=windows)

    return te.compute(outputs, element, name="pool_max")
