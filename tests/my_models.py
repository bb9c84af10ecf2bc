"""Models as a user writes them, good ones and bad ones."""

import numpy as np
import tvm
from tvm import relax


def model_of(shape, layers, dtype="float32"):
    """Of one input, ``layers(emit, data)`` being what is computed of it."""
    builder = relax.BlockBuilder()
    data = relax.Var("data", relax.TensorType(shape, dtype))
    with builder.function("main", [data]):
        with builder.dataflow():
            output = builder.emit_output(layers(builder.emit, data))
        builder.emit_func_output(output)
    return builder.finalize()


def small(batch=1, channels=32, seed=0):
    """Three convolutions, of which two are the same task, a shortcut, bounds, a mean and a product."""
    rng = np.random.default_rng(seed)
    op = relax.op

    def weight(*shape):
        return relax.const(rng.uniform(-0.2, 0.2, shape).astype("float32"))

    def layers(emit, x):
        x = emit(op.clip(emit(op.nn.conv2d(x, weight(channels, 3, 3, 3), padding=[1, 1, 1, 1])), 0, 6))
        for _ in range(2):
            y = emit(
                op.add(emit(op.nn.conv2d(x, weight(channels, channels, 3, 3), padding=[1, 1, 1, 1])), weight(1, channels, 1, 1))
            )
            x = emit(op.nn.relu(emit(op.add(y, x))))
        return emit(op.nn.softmax(emit(op.matmul(emit(op.mean(x, axis=[2, 3])), weight(channels, 10)))))

    return model_of((batch, 3, 16, 16), layers)


def to_few(outer=3, kernel=(3, 3), strides=1, dilation=1):
    """A convolution with few outputs, and what follows it."""
    rng, op = np.random.default_rng(0), relax.op
    weight = relax.const(rng.uniform(-0.2, 0.2, (outer, 32, *kernel)).astype("float32"))
    shift = relax.const(rng.uniform(-0.2, 0.2, (1, outer, 1, 1)).astype("float32"))

    def layers(emit, x):
        x = emit(op.nn.conv2d(x, weight, strides=[strides] * 2, padding=[1, 0, 2, 1], dilation=[dilation] * 2))
        return emit(op.tanh(emit(op.add(x, shift))))

    return model_of((2, 32, 9, 10), layers)


def depthwise(follows):
    """A depthwise convolution with two filters a channel, and what may follow it."""
    weight, op = relax.const(np.random.default_rng(0).uniform(-0.2, 0.2, (48, 1, 3, 3)).astype("float32")), relax.op

    def layers(emit, x):
        x = emit(op.nn.conv2d(x, weight, strides=[2, 1], padding=[1, 1, 1, 1], groups=24))
        return emit(op.nn.relu(x)) if follows else x

    return model_of((1, 24, 9, 10), layers)


def pooling(image=(9, 10), kernel=3, strides=2, padding=1, dilation=1, ceil_mode=False):
    """The largest of windows."""
    pool = getattr(relax.op.nn, f"max_pool{len(image)}d")
    return model_of((2, 3, *image), lambda emit, x: emit(pool(x, kernel, strides, padding, dilation, ceil_mode)))


def dynamic():
    return model_of((tvm.tirx.Var("n", "int64"), 4), lambda emit, x: emit(relax.op.nn.relu(x)))


def nothing_to_tune():
    return model_of((4, 4), lambda emit, x: emit(relax.op.permute_dims(x)))


def without_a_program():
    """An operator that TVM 0.27 has no program for."""
    return model_of((1, 4, 4, 4), lambda emit, x: emit(relax.op.nn.pixel_shuffle(x, 2)))


def sorted_rows():
    """An operator that is no loop nest to schedule, after one that is."""
    weight = relax.const(np.ones((32, 32), "float32"))
    return model_of((8, 32), lambda emit, x: emit(relax.op.sort(emit(relax.op.matmul(x, weight)))))


def first_layer(width=32, filters=32):
    """A convolution of three channels."""
    weight = relax.const(np.random.default_rng(0).uniform(-0.2, 0.2, (filters, 3, 3, 3)).astype("float32"))
    return model_of((1, 3, 9, width), lambda emit, x: emit(relax.op.nn.conv2d(x, weight, padding=1)))


def transposed(
    image=(5, 6), kernel=(4, 4), inner=8, outer=32, strides=2, padding=1, output_padding=0, dilation=1, groups=1, alone=False
):
    """A transposed convolution and what follows it, or ``alone``."""
    rng, op, dims = np.random.default_rng(0), relax.op, len(image)
    weight = relax.const(rng.uniform(-0.2, 0.2, (inner, outer // groups, *kernel)).astype("float32"))
    shift = relax.const(rng.uniform(-0.2, 0.2, (1, outer, *[1] * dims)).astype("float32"))
    numbers = dict(strides=[strides] * dims, padding=[padding] * 2 * dims, output_padding=[output_padding] * dims)
    convolve = getattr(op.nn, f"conv{dims}d_transpose")

    def layers(emit, x):
        x = emit(convolve(x, weight, **numbers, dilation=[dilation] * dims, groups=groups))
        if alone:
            return x
        return emit(op.nn.relu(emit(op.add(x, shift))))

    return model_of((2, inner, *image), layers)
