"""Products of 8-bit integers by AVX512-VNNI: an instruction adds four products to each of 16 sums. TVM is imported inside functions.

X is unsigned or signed, Y signed, the sums are int32. Four elements of a row of X are to the instruction what one of float32 is to a
multiply-add, and so are four rows of Y, interleaved: the template for the CPU (`cpu`) schedules the product of (n, k / 4) by
(k / 4, m), and puts instructions where there are 16 columns and four steps left.

LLVM 22's type of the instruction is not the one that TVM 0.27's own intrinsics have.
"""

import functools

# Steps of the sum that an instruction makes, and columns.
STEPS, COLUMNS = 4, 16
FEATURE = "avx512vnni"
# Registered names: of the instruction by the type of X, and of interleaving rows of Y.
DOT, INTERLEAVE = "tensor_tuners.vpdpbusd.{}", "tensor_tuners.interleave"


def fits(types, k, m, layout, target):
    """Whether a target has the instruction for a product with elements of ``types``, of X, Y and Z."""
    from tvm.target.codegen import target_has_features

    typed = types in (("uint8", "int8", "int32"), ("int8", "int8", "int32"))
    whole = k % STEPS == 0 and m % COLUMNS == 0 and layout[0] == "N"
    return typed and whole and bool(target_has_features(FEATURE, target))


@functools.cache
def register():
    """Make the instructions known to TVM, for schedules and their traces."""
    from tvm.s_tir import TensorIntrin

    for dtype in ("uint8", "int8"):
        TensorIntrin.register(DOT.format(dtype), *_dot(dtype), override=True)
    TensorIntrin.register(INTERLEAVE, *_interleave(), override=True)


def _dot(dtype):
    """What the instruction computes of X of a type, and how."""
    from tvm.script import tirx as T

    @T.prim_func(s_tir=True)
    def computed(
        X: T.Buffer((4,), dtype, offset_factor=1),
        Y: T.Buffer((16, 4), "int8", offset_factor=1),
        Z: T.Buffer((16,), "int32", offset_factor=1),
    ) -> None:
        with T.sblock("root"):
            T.reads(Z[0:16], X[0:4], Y[0:16, 0:4])
            T.writes(Z[0:16])
            for j in T.serial(0, 16):
                for k in T.serial(0, 4):
                    with T.sblock("update"):
                        vj, vk = T.axis.remap("SR", [j, k])
                        Z[vj] = Z[vj] + T.cast(X[vk], "int32") * T.cast(Y[vj, vk], "int32")

    def added(total, x, y):
        instruction = T.llvm_lookup_intrinsic_id("llvm.x86.avx512.vpdpbusd.512")
        return T.call_llvm_pure_intrin(instruction, total, x, y, dtype="int32x16")

    def product(total, x, y):
        """The instruction takes X as unsigned. A signed one is 128 less than its byte is with the highest bit flipped; 128 times Y is
        subtracted, which is the same for all rows of X."""
        four = T.reinterpret(x, dtype="int32")
        if dtype == "int8":
            four = T.bitwise_xor(four, T.int32(-0x7F7F7F80))  # 0x80 in each byte
        total = added(total, T.reinterpret(T.broadcast(four, 16), dtype="int8x64"), y)
        return total if dtype == "uint8" else total - added(T.broadcast(T.int32(0), 16), T.broadcast(T.int8(-128), 64), y)

    @T.prim_func(s_tir=True)
    def computing(
        X: T.Buffer((4,), dtype, offset_factor=1),
        Y: T.Buffer((16, 4), "int8", offset_factor=1),
        Z: T.Buffer((16,), "int32", offset_factor=1),
    ) -> None:
        with T.sblock("root"):
            T.reads(Z[0:16], X[0:4], Y[0:16, 0:4])
            T.writes(Z[0:16])
            Z[T.ramp(T.int32(0), 1, 16)] = product(
                Z.vload([0], dtype="int32x16"), X.vload([0], dtype=dtype + "x4"), Y.vload([0, 0], dtype="int8x64")
            )

    return computed, computing


def _interleave():
    """Four rows of 16 columns of Y, to lie side by side column by column; and how."""
    from tvm.script import tirx as T

    @T.prim_func(s_tir=True)
    def computed(rows: T.handle, columns: T.handle) -> None:
        distance = T.int32()
        Y = T.match_buffer(rows, (4, 16), "int8", strides=[distance, 1], offset_factor=1)
        packed = T.match_buffer(columns, (16, 4), "int8", offset_factor=1)
        with T.sblock("root"):
            T.reads(Y[0:4, 0:16])
            T.writes(packed[0:16, 0:4])
            for j in T.serial(0, 16):
                for k in T.serial(0, 4):
                    with T.sblock("update"):
                        vk, vj = T.axis.remap("SS", [k, j])
                        packed[vj, vk] = Y[vk, vj]

    def shifted(row, place):
        return T.cast(T.reinterpret(row, dtype="uint8x16"), "int32x16") << T.broadcast(T.int32(8 * place), 16)

    @T.prim_func(s_tir=True)
    def computing(rows: T.handle, columns: T.handle) -> None:
        distance = T.int32()
        Y = T.match_buffer(rows, (4, 16), "int8", strides=[distance, 1], offset_factor=1)
        packed = T.match_buffer(columns, (16, 4), "int8", offset_factor=1)
        with T.sblock("root"):
            T.reads(Y[0:4, 0:16])
            T.writes(packed[0:16, 0:4])
            packed[0, T.ramp(T.int32(0), 1, 64)] = T.reinterpret(
                shifted(Y.vload([0, 0], dtype="int8x16"), 0)
                | shifted(Y.vload([1, 0], dtype="int8x16"), 1)
                | shifted(Y.vload([2, 0], dtype="int8x16"), 2)
                | shifted(Y.vload([3, 0], dtype="int8x16"), 3),
                dtype="int8x64",
            )

    return computed, computing
