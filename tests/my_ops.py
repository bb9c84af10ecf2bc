"""Tensor programs as a user writes them, good ones and bad ones."""

import tvm
from tvm import te

number = 3


def product(n=64, k=64, m=64):
    left, right = te.placeholder((n, k), name="left"), te.placeholder((k, m), name="right")
    axis = te.reduce_axis((0, k), name="k")
    return [left, right, te.compute((n, m), lambda i, j: te.sum(left[i, axis] * right[axis, j], axis=axis), name="product")]


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
