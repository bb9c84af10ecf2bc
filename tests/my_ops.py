"""Tensor programs as a user writes them, good ones and bad ones."""

import tvm
from tvm import te

number = 3


def product(n=64, k=64, m=64):
    left, right = te.placeholder((n, k), name="left"), te.placeholder((k, m), name="right")
    axis = te.reduce_axis((0, k), name="k")
    return [left, right, te.compute((n, m), lambda i, j: te.sum(left[i, axis] * right[axis, j], axis=axis), name="product")]


def packed_product(n=64, k=64, m=64, block=16):
    """What `product` is of its second operand packed, (m / block, k, block)."""
    left, right = te.placeholder((n, k), name="left"), te.placeholder((m // block, k, block), name="right")
    axis = te.reduce_axis((0, k), name="k")
    read = lambda i, j: left[i, axis] * right[j // block, axis, j % block]  # noqa: E731
    return [left, right, te.compute((n, m), lambda i, j: te.sum(read(i, j), axis=axis), name="product")]


def two_products(n=64, k=32, m=64):
    """Of three operands, the product of the first two by the third: two kernels on a GPU."""
    first, second, third = (te.placeholder(s, name=name) for s, name in (((n, k), "a"), ((k, m), "b"), ((m, n), "c")))
    one, other = te.reduce_axis((0, k), name="one"), te.reduce_axis((0, m), name="other")
    inner = te.compute((n, m), lambda i, j: te.sum(first[i, one] * second[one, j], axis=one), name="inner")
    return [first, second, third, te.compute((n, n), lambda i, j: te.sum(inner[i, other] * third[other, j], axis=other), name="outer")]


def transposed_product(n=64, k=64, m=64):
    """What `product` is of its second operand transposed."""
    left, right = te.placeholder((n, k), name="left"), te.placeholder((m, k), name="right")
    axis = te.reduce_axis((0, k), name="k")
    return [left, right, te.compute((n, m), lambda i, j: te.sum(left[i, axis] * right[j, axis], axis=axis), name="product")]


def dense(n=24, k=32, m=40):
    """x (n, k), w (m, k), b (m,): a product with a transposed operand, a bias and a ReLU."""
    x, w, b = (te.placeholder(shape, name=name) for shape, name in (((n, k), "x"), ((m, k), "w"), ((m,), "b")))
    axis = te.reduce_axis((0, k), name="k")
    total = te.compute((n, m), lambda i, j: te.sum(x[i, axis] * w[j, axis], axis=axis), name="dense")
    biased = te.compute((n, m), lambda i, j: total[i, j] + b[j], name="biased")
    return [x, w, b, te.compute((n, m), lambda i, j: te.max(biased[i, j], 0.0), name="relu")]


def gated(n=16, k=24, m=32):
    """x (n, k), w (k, m): a product y, and y times a sigmoid of it, so that two stages read it."""
    x, w = te.placeholder((n, k), name="x"), te.placeholder((k, m), name="w")
    axis = te.reduce_axis((0, k), name="k")
    y = te.compute((n, m), lambda i, j: te.sum(x[i, axis] * w[axis, j], axis=axis), name="y")
    gate = te.compute((n, m), lambda i, j: te.sigmoid(y[i, j]), name="gate")
    return [x, w, te.compute((n, m), lambda i, j: y[i, j] * gate[i, j], name="gated")]


def of_bytes(n=12, k=32, m=48, left="int8", transposed=False, batch=(), scaled=False):
    """x (n, k) of ``left``, y (k, m) of int8, perhaps transposed: their product, int32; perhaps of a batch, and perhaps scaled."""
    x = te.placeholder((*batch, n, k), left, name="x")
    y = te.placeholder((*batch, m, k) if transposed else (*batch, k, m), "int8", name="y")
    axis = te.reduce_axis((0, k), name="k")

    def element(*place):
        *of, i, j = place
        right = y[(*of, j, axis) if transposed else (*of, axis, j)]
        return te.sum(x[(*of, i, axis)].astype("int32") * right.astype("int32"), axis=axis)

    total = te.compute((*batch, n, m), element, name="total")
    if not scaled:
        return [x, y, total]
    return [x, y, te.compute(total.shape, lambda *place: total[place].astype("float32") * 0.5, name="scaled")]


def square(n=8):
    x = te.placeholder((n, n), name="x")
    axis = te.reduce_axis((0, n), name="k")
    return [x, te.compute((n, n), lambda i, j: te.sum(x[i, axis] * x[axis, j], axis=axis), name="square")]


def _scaled(factor, n=64, dtype="float32"):
    data = te.placeholder((n,), dtype, name="data")
    return te.create_prim_func([data, te.compute((n,), lambda i: data[i] * tvm.tirx.const(factor, dtype), name="scaled")])


scaled = _scaled(2.0)
scaled_module = tvm.IRModule({"anything": scaled.with_attr("global_symbol", "anything")})


def scaled_by_three():
    return _scaled(3.0)


def dynamic():
    return _scaled(2.0, te.var("n"))


def complex_numbers():
    return _scaled(2, dtype="uint64")


def two_outputs():
    data = te.placeholder((8,), name="data")
    one = te.compute((8,), lambda i: data[i] + 1.0, name="one")
    return [data, one, te.compute((8,), lambda i: one[i] * 2.0, name="two")]


def column_sums(n=256, m=8):
    data, k = te.placeholder((n, m), name="data"), te.reduce_axis((0, n), name="k")
    return [data, te.compute((m,), lambda j: te.sum(data[k, j], k), name="total")]
