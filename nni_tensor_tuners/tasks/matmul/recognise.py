"""Finding the matrix product that a tensor program is, so that its templates can schedule it. TVM is imported inside functions."""

from .definition import LAYOUTS, BatchMatmul, Matmul

REDUCE = 2  # as `IterVar.iter_type` has it


def recognise(module):
    """The matrix product that a program is, perhaps with elementwise stages after it, as TE makes them.

    Parameters
    ----------
    module
        An IRModule with the function "main".

    Returns
    -------
    (task, block, types): a `Matmul` or `BatchMatmul`, whatever the elements; the name of the block that computes it; and the types
    of the elements of X, Y and Z, by TVM's names. None where it is no product.
    """
    from tvm import s_tir

    sch = s_tir.Schedule(module, error_render_level="none")
    blocks = sch.get_child_blocks(sch.get_sblock("root", "main"))
    sums = [each for each in blocks if any(axis.iter_type == REDUCE for axis in sch.get(each).iter_vars)]
    if len(sums) != 1 or sch.get_producers(sums[0]) or len(sch.get_output_blocks(sch.get_sblock("root", "main"))) != 1:
        return None
    block = sch.get(sums[0])
    axes = [axis.var for axis in block.iter_vars]
    extents = [int(axis.dom.extent) for axis in block.iter_vars]
    if [int(sch.get(loop).extent) for loop in sch.get_loops(sums[0])] != extents or len(axes) not in (3, 4):
        return None
    operands = _operands(block.body)
    if operands is None:
        return None
    types = tuple(str(buffer.dtype) for buffer in (*(each.source for each in operands[:2]), operands[2].buffer))
    *batch, i, j, k = axes
    for layout in LAYOUTS:
        x = (*batch, k, i) if layout[0] == "T" else (*batch, i, k)
        y = (*batch, j, k) if layout[1] == "T" else (*batch, k, j)
        if all(map(_reads, operands, (x, y, (*batch, i, j)))):
            *b, n, m, inner = extents
            return (BatchMatmul(n, inner, m, layout, *b) if b else Matmul(n, inner, m, layout)), block.name_hint, types
    return None


def _operands(body):
    """The loads of X and Y, perhaps cast, and the store to Z of ``Z[...] = Z[...] + X[...] * Y[...]``; None of anything else."""
    from tvm import tirx
    from tvm.ir.expr import TensorLoad

    value = getattr(body, "value", None)
    if not isinstance(body, tirx.BufferStore) or not isinstance(value, tirx.Add) or not isinstance(value.b, tirx.Mul):
        return None
    total, x, y = value.a, *(each.value if isinstance(each, tirx.Cast) else each for each in (value.b.a, value.b.b))
    loads = all(isinstance(each, TensorLoad) for each in (total, x, y))
    if not loads or not total.source.same_as(body.buffer) or x.source.same_as(y.source):
        return None
    return x, y, body


def _reads(access, axes):
    """Whether a load or a store is at exactly these axes."""
    return len(access.indices) == len(axes) and all(index.same_as(axis) for index, axis in zip(access.indices, axes))
