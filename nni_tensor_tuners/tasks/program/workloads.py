"""The tensor programs of the Ansor and Bansor papers, and a few more, as TVM PrimFuncs.

Each function takes its shape and returns a PrimFunc of its inputs and its output, in float32 unless said. Channels come last,
in images and in kernels, as in Ansor's benchmarks; the project's own convolution tasks have them first. A convolution's loops
are n, the image's z, y and x, and f, the output's channel; reduced are rz, ry, rx, the kernel's, and rc, the input's channel.
"""

from functools import wraps
from inspect import signature

from ..extents import check_extent

# The operators of Bansor's figure 2, the subgraphs of its figure 3, and some of our own.
OPERATORS = ("c1d", "c2d", "c3d", "gmm", "grp", "dil", "dep", "t2d", "cap", "nrm")
SUBGRAPHS = ("conv_layer", "tbs")
PROGRAMS = (*OPERATORS, *SUBGRAPHS, "matmul", "softmax", "layer_norm", "conv_bias_relu")


def _program(define):
    """From a function that returns TE's inputs and output, one that checks its extents and returns their PrimFunc."""
    form = signature(define)

    @wraps(define)
    def program(*args, **fields):
        for name, value in form.bind(*args, **fields).arguments.items():
            if isinstance(form.parameters[name].default, int):
                check_extent(define.__name__, name, value, least=0 if name == "padding" else 1)
        from tvm import te

        return te.create_prim_func(list(define(*args, **fields)))

    return program


def _rows(names, *rows):
    """Keyword arguments from a table of shapes."""
    return [dict(zip(names.split(), row, strict=True)) for row in rows]


# What Ansor and Bansor were measured on, each at batch 1 and 16. Bansor prints one, the third of c1d, its default here; of all
# others the default is the first. Source: scripts/shape_configs.py of Ansor's artifact, whose copies in the histories of
# apache/tvm, UofT-EcoSystem/incubator-tvm and skystoler/myAnsor agree on every one below, as does TVM's own table, CONFIGS in
# s_tir/meta_schedule/testing/te_workload.py. That capsules are 4 x 4 is a default there. None is unconfirmed.
SHAPES = {
    "c1d": _rows(
        "length in_channels out_channels kernel stride padding",
        (256, 64, 128, 3, 2, 1),
        (128, 128, 256, 1, 2, 0),
        (64, 256, 256, 5, 1, 2),
        (32, 512, 512, 3, 1, 1),
    ),
    "c2d": _rows(
        "height width in_channels out_channels kernel stride padding",
        (224, 224, 3, 64, 7, 2, 3),
        (56, 56, 64, 64, 1, 1, 0),
        (14, 14, 256, 256, 3, 1, 1),
        (7, 7, 512, 512, 3, 1, 1),
    ),
    "c3d": _rows(
        "depth height width in_channels out_channels kernel stride padding",
        (16, 224, 224, 3, 64, 7, 2, 3),
        (16, 56, 56, 64, 64, 1, 1, 0),
        (16, 14, 14, 256, 256, 3, 1, 1),
        (16, 7, 7, 512, 512, 3, 1, 1),
    ),
    "gmm": _rows("n k m", (128, 128, 128), (512, 512, 32), (512, 512, 512), (1024, 1024, 1024)),
    "grp": _rows(
        "height width in_channels out_channels kernel stride padding groups",
        (56, 56, 64, 128, 3, 2, 1, 4),
        (56, 56, 64, 64, 1, 1, 0, 4),
        (14, 14, 256, 256, 3, 1, 1, 4),
        (7, 7, 512, 512, 3, 1, 1, 4),
    ),
    "dil": _rows(
        "height width in_channels out_channels kernel stride padding dilation",
        (224, 224, 3, 64, 7, 2, 3, 2),
        (56, 56, 64, 64, 1, 1, 0, 2),
        (14, 14, 256, 256, 3, 1, 1, 2),
        (7, 7, 512, 512, 3, 1, 1, 2),
    ),
    "dep": _rows(
        "height width channels kernel stride padding",
        (112, 112, 32, 3, 1, 1),
        (112, 112, 64, 3, 2, 1),
        (14, 14, 512, 3, 2, 1),
        (7, 7, 1024, 3, 1, 1),
    ),
    "t2d": _rows(
        "height width in_channels out_channels kernel stride padding",
        (4, 4, 512, 256, 4, 2, 1),
        (8, 8, 256, 128, 4, 2, 1),
        (16, 16, 128, 64, 4, 2, 1),
        (32, 32, 64, 3, 4, 2, 1),
    ),
    "cap": _rows(
        "height width in_channels out_channels kernel stride padding capsule",
        (16, 16, 32, 32, 3, 2, 1, 4),
        (8, 8, 32, 32, 3, 1, 1, 4),
        (16, 16, 8, 16, 3, 2, 1, 4),
        (8, 8, 16, 16, 3, 1, 1, 4),
    ),
    "nrm": _rows("n m", (256, 256), (512, 512), (1024, 1024), (4096, 1024)),
    "conv_layer": _rows(
        "height width in_channels out_channels kernel stride padding",
        (224, 224, 3, 64, 7, 2, 3),
        (56, 56, 64, 128, 3, 2, 1),
        (28, 28, 128, 256, 1, 2, 0),
        (7, 7, 512, 512, 3, 1, 1),
    ),
    "tbs": _rows("length heads dim", (128, 12, 64), (128, 16, 64), (64, 12, 128), (128, 12, 128)),
}


@_program
def c1d(length=64, in_channels=256, out_channels=256, kernel=5, stride=1, padding=2, batch=1):
    """data (batch, length, in_channels), weight (kernel, in_channels, out_channels). As printed: Bansor, section V.A."""
    return _convolution("c1d", (length,), in_channels, out_channels, kernel, stride, padding, batch)


@_program
def c2d(height=224, width=224, in_channels=3, out_channels=64, kernel=7, stride=2, padding=3, batch=1):
    """data (batch, height, width, in_channels), weight (kernel, kernel, in_channels, out_channels)."""
    return _convolution("c2d", (height, width), in_channels, out_channels, kernel, stride, padding, batch)


@_program
def c3d(depth=16, height=224, width=224, in_channels=3, out_channels=64, kernel=7, stride=2, padding=3, batch=1):
    """data (batch, depth, height, width, in_channels), weight (kernel, kernel, kernel, in_channels, out_channels)."""
    return _convolution("c3d", (depth, height, width), in_channels, out_channels, kernel, stride, padding, batch)


@_program
def grp(height=56, width=56, in_channels=64, out_channels=128, kernel=3, stride=2, padding=1, groups=4, batch=1):
    """Grouped: data (batch, height, width, in_channels), weight (kernel, kernel, in_channels / groups, out_channels)."""
    if in_channels % groups or out_channels % groups:
        raise ValueError(f"grp: groups must divide the channels, got {groups} for {in_channels} and {out_channels}")
    return _convolution("grp", (height, width), in_channels, out_channels, kernel, stride, padding, batch, groups=groups)


@_program
def dil(height=224, width=224, in_channels=3, out_channels=64, kernel=7, stride=2, padding=3, dilation=2, batch=1):
    """Dilated: data (batch, height, width, in_channels), weight (kernel, kernel, in_channels, out_channels)."""
    return _convolution("dil", (height, width), in_channels, out_channels, kernel, stride, padding, batch, dilation)


@_program
def conv_layer(height=224, width=224, in_channels=3, out_channels=64, kernel=7, stride=2, padding=3, batch=1):
    """Convolution, batch normalisation, ReLU: inputs of `c2d`, scale (out_channels,), shift (out_channels,).

    Scale and shift are what is left of the normalisation, and of the convolution's bias, once training is over. Ansor's has
    the bias apart.
    """
    from tvm import te

    data, weight, conv = _convolution("conv_layer", (height, width), in_channels, out_channels, kernel, stride, padding, batch)
    scale, shift = (te.placeholder((out_channels,), name=name) for name in ("scale", "shift"))
    normalised = te.compute(conv.shape, lambda n, y, x, f: conv[n, y, x, f] * scale[f] + shift[f], name="batch_norm")
    return data, weight, scale, shift, _relu(normalised)


@_program
def conv_bias_relu(height=28, width=28, in_channels=128, out_channels=128, kernel=3, stride=1, padding=1, batch=1):
    """Convolution, bias, ReLU: inputs of `c2d`, bias (out_channels,). C6 of ResNet-18, "resnet18-c6", with channels last."""
    from tvm import te

    image = (height, width)
    data, weight, conv = _convolution("conv_bias_relu", image, in_channels, out_channels, kernel, stride, padding, batch)
    bias = te.placeholder((out_channels,), name="bias")
    biased = te.compute(conv.shape, lambda n, y, x, f: conv[n, y, x, f] + bias[f], name="bias_add")
    return data, weight, bias, _relu(biased)


@_program
def dep(height=112, width=112, channels=32, kernel=3, stride=1, padding=1, batch=1):
    """Depthwise: data (batch, height, width, channels), weight (kernel, kernel, channels). Its channel's loop is c."""
    from tvm import te

    out_height, out_width = (_output("dep", extent, kernel, stride, padding) for extent in (height, width))
    data = te.placeholder((batch, height, width, channels), name="data")
    weight = te.placeholder((kernel, kernel, channels), name="weight")
    padded = _padded(data, "yx", padding)
    ry, rx = _reduced("ry rx", kernel, kernel)
    conv = te.compute(
        (batch, out_height, out_width, channels),
        lambda n, y, x, c: te.sum(padded[n, y * stride + ry, x * stride + rx, c] * weight[ry, rx, c], axis=[ry, rx]),
        name="conv",
    )
    return data, weight, conv


@_program
def t2d(height=4, width=4, in_channels=512, out_channels=256, kernel=4, stride=2, padding=1, batch=1):
    """Transposed: data (batch, height, width, in_channels), weight (kernel, kernel, in_channels, out_channels).

    The output has (height - 1) * stride - 2 * padding + kernel rows. As in Ansor's, the zeros between the input's elements are
    no stage of their own but a condition inside the sum, which unrolling by the stride takes out again.
    """
    from tvm import te, tirx

    if not padding < kernel:
        raise ValueError(f"t2d: padding must be less than the kernel, got {padding} for {kernel}")
    # The kernel turned round slides over the input spread out by the stride, with so many zeros around it.
    around = kernel - 1 - padding
    wide = -(-around // stride)
    skipped = wide * stride - around
    out_height, out_width = ((extent - 1) * stride - 2 * padding + kernel for extent in (height, width))
    if min(out_height, out_width) < 1:
        raise ValueError(f"t2d: nothing is left of {height} x {width} by padding {padding}")
    data = te.placeholder((batch, height, width, in_channels), name="data")
    weight = te.placeholder((kernel, kernel, in_channels, out_channels), name="weight")
    padded = _padded(data, "yx", wide)
    ry, rx, rc = _reduced("ry rx rc", kernel, kernel, in_channels)

    def product(n, y, x, f):
        row, column = y + ry + skipped, x + rx + skipped
        element = padded[n, row // stride, column // stride, rc]
        if stride > 1:
            there = tirx.all(row % stride == 0, column % stride == 0)
            element = tirx.if_then_else(there, element, tirx.const(0, "float32"))
        return te.sum(element * weight[kernel - 1 - ry, kernel - 1 - rx, rc, f], axis=[ry, rx, rc])

    conv = te.compute((batch, out_height, out_width, out_channels), product, name="conv")
    return data, weight, conv


@_program
def cap(height=16, width=16, in_channels=32, out_channels=32, kernel=3, stride=2, padding=1, capsule=4, batch=1):
    """Capsules: a convolution whose elements are matrices of capsule x capsule, and whose products are theirs.

    data (batch, height, width, capsule, capsule, in_channels), weight (kernel, kernel, capsule, capsule, in_channels,
    out_channels); i, j and the reduced k are the matrices' dimensions.
    """
    from tvm import te

    out_height, out_width = (_output("cap", extent, kernel, stride, padding) for extent in (height, width))
    data = te.placeholder((batch, height, width, capsule, capsule, in_channels), name="data")
    weight = te.placeholder((kernel, kernel, capsule, capsule, in_channels, out_channels), name="weight")
    padded = _padded(data, "yx", padding, "ijc")
    ry, rx, k, rc = _reduced("ry rx k rc", kernel, kernel, capsule, in_channels)
    conv = te.compute(
        (batch, out_height, out_width, capsule, capsule, out_channels),
        lambda n, y, x, i, j, f: te.sum(
            padded[n, y * stride + ry, x * stride + rx, i, k, rc] * weight[ry, rx, k, j, rc, f], axis=[ry, rx, k, rc]
        ),
        name="conv",
    )
    return data, weight, conv


@_program
def gmm(n=128, k=128, m=128, batch=1):
    """A batch of matrix products: left (batch, n, k), right (batch, k, m)."""
    from tvm import te

    left, right = te.placeholder((batch, n, k), name="left"), te.placeholder((batch, k, m), name="right")
    (inner,) = _reduced("k", k)
    product = te.compute(
        (batch, n, m), lambda b, i, j: te.sum(left[b, i, inner] * right[b, inner, j], axis=inner), name="matmul"
    )
    return left, right, product


@_program
def matmul(n=512, k=1024, m=1024, dtype="float32", out_dtype=None):
    """A matrix product, by default the shape of MM1: left (n, k), right (k, m), both of ``dtype``.

    The sum is made and returned in ``out_dtype``, by default ``dtype``, int32 for 8-bit integers.
    """
    from tvm import te

    out_dtype = out_dtype or ("int32" if dtype in ("int8", "uint8") else dtype)
    left, right = te.placeholder((n, k), dtype, name="left"), te.placeholder((k, m), dtype, name="right")
    (inner,) = _reduced("k", k)
    product = te.compute(
        (n, m),
        lambda i, j: te.sum(left[i, inner].astype(out_dtype) * right[inner, j].astype(out_dtype), axis=inner),
        name="matmul",
    )
    return left, right, product


@_program
def nrm(n=256, m=256, batch=1):
    """The 2-norm of each of a batch of matrices: data (batch, n, m), output (batch,)."""
    from tvm import te

    data = te.placeholder((batch, n, m), name="data")
    i, j = _reduced("i j", n, m)
    squares = te.compute((batch,), lambda b: te.sum(data[b, i, j] * data[b, i, j], axis=[i, j]), name="squares")
    return data, te.compute((batch,), lambda b: te.sqrt(squares[b]), name="norm")


@_program
def softmax(n=768, m=128):
    """The softmax of each of n rows: data (n, m)."""
    from tvm import te

    data = te.placeholder((n, m), name="data")
    return data, _softmax(data, "ij")


@_program
def tbs(length=128, heads=12, dim=64, batch=1):
    """Two transpositions, a batch of matrix products and a softmax, as in attention.

    query (batch, length, heads, dim), key the same, output (batch, heads, length, length), not scaled, as in Ansor's. Its
    exponential is exact; Ansor's was the approximation topi.nn.fast_softmax.
    """
    from tvm import te

    query, key = (te.placeholder((batch, length, heads, dim), name=name) for name in ("query", "key"))
    turned = te.compute((batch, heads, length, dim), lambda b, h, i, d: query[b, i, h, d], name="query_t")
    laid = te.compute((batch, heads, dim, length), lambda b, h, d, j: key[b, j, h, d], name="key_t")
    (k,) = _reduced("k", dim)
    scores = te.compute(
        (batch, heads, length, length),
        lambda b, h, i, j: te.sum(turned[b, h, i, k] * laid[b, h, k, j], axis=k),
        name="scores",
    )
    return query, key, _softmax(scores, "bhij")


@_program
def layer_norm(n=128, m=768, epsilon=1e-5):
    """Each of n rows to mean 0 and variance 1, then scaled and shifted: data (n, m), gamma (m,), beta (m,)."""
    from tvm import te

    data = te.placeholder((n, m), name="data")
    gamma, beta = (te.placeholder((m,), name=name) for name in ("gamma", "beta"))
    (k,) = _reduced("k", m)
    total = te.compute((n,), lambda i: te.sum(data[i, k], axis=k), name="row_sum")
    centred = te.compute((n, m), lambda i, j: data[i, j] - total[i] * (1 / m), name="centred")
    (k,) = _reduced("k", m)
    squares = te.compute((n,), lambda i: te.sum(centred[i, k] * centred[i, k], axis=k), name="squares")
    scaled = te.compute(
        (n, m), lambda i, j: centred[i, j] * te.rsqrt(squares[i] * (1 / m) + epsilon) * gamma[j] + beta[j], name="layer_norm"
    )
    return data, gamma, beta, scaled


def _reduced(names, *extents):
    """Reduced axes of TE."""
    from tvm import te

    return [te.reduce_axis((0, extent), name=name) for name, extent in zip(names.split(), extents, strict=True)]


def _output(name, extent, kernel, stride, padding, dilation=1):
    """Positions of a kernel along one dimension."""
    reach = dilation * (kernel - 1) + 1
    if reach > extent + 2 * padding:
        raise ValueError(f"{name}: a kernel that reaches over {reach} is larger than the padded image, {extent + 2 * padding}")
    return (extent + 2 * padding - reach) // stride + 1


def _padded(data, axes, padding, inner="c"):
    """A stage "pad": data (n, *axes, *inner) with zeros at both ends of ``axes``; data itself where there are none to add."""
    from tvm import te, tirx

    if not padding:
        return data
    extents, rest = data.shape[1 : 1 + len(axes)], data.shape[1 + len(axes) :]

    def element(n, *place):
        image = [p - padding for p in place[: len(axes)]]
        inside = [test for p, extent in zip(image, extents) for test in (p >= 0, p < extent)]
        return tirx.if_then_else(tirx.all(*inside), data[(n, *image, *place[len(axes) :])], tirx.const(0, data.dtype))

    shape = (data.shape[0], *(extent + 2 * padding for extent in extents), *rest)
    return te.compute(shape, element, name="pad", varargs_names=[*axes, *inner])


def _convolution(name, image, in_channels, out_channels, kernel, stride, padding, batch, dilation=1, groups=1):
    """Data, weight and the stage "conv"."""
    from tvm import te

    output = [_output(name, extent, kernel, stride, padding, dilation) for extent in image]
    axes = "zyx"[-len(image) :]
    into, out_of = in_channels // groups, out_channels // groups
    data = te.placeholder((batch, *image, in_channels), name="data")
    weight = te.placeholder((*[kernel] * len(axes), into, out_channels), name="weight")
    padded = _padded(data, axes, padding)
    *taps, rc = _reduced(" ".join(f"r{axis}" for axis in (*axes, "c")), *[kernel] * len(axes), into)

    def product(n, *place):
        *image, f = place
        read = [p * stride + tap * dilation for p, tap in zip(image, taps)]
        channel = f // out_of * into + rc if groups > 1 else rc
        return te.sum(padded[(n, *read, channel)] * weight[(*taps, rc, f)], axis=[*taps, rc])

    return data, weight, te.compute((batch, *output, out_channels), product, name="conv", varargs_names=[*axes, "f"])


def _relu(data):
    """A stage "relu" over an image with channels last."""
    from tvm import te, tirx

    return te.compute(data.shape, lambda n, y, x, f: tirx.max(data[n, y, x, f], tirx.const(0, data.dtype)), name="relu")


def _softmax(data, axes):
    """Stages "row_max", "exp", "row_sum" and "softmax" over the last dimension; ``axes`` names all."""
    from tvm import te

    *outer, extent = data.shape
    (k,) = _reduced("k", extent)
    largest = te.compute(outer, lambda *row: te.max(data[(*row, k)], axis=k), name="row_max", varargs_names=[*axes[:-1]])
    powers = te.compute(data.shape, lambda *at: te.exp(data[at] - largest[at[:-1]]), name="exp", varargs_names=[*axes])
    (k,) = _reduced("k", extent)
    total = te.compute(outer, lambda *row: te.sum(powers[(*row, k)], axis=k), name="row_sum", varargs_names=[*axes[:-1]])
    return te.compute(data.shape, lambda *at: powers[at] / total[at[:-1]], name="softmax", varargs_names=[*axes])
