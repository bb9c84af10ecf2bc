"""Compiling a module as it is best compiled for its target. TVM is imported inside functions only."""

from . import vector_math


def compiled(module, target, compiler=None):
    """``tvm.compile(module, target)``: on a CPU as `vector_math.compiled`, for CUDA in `cuda_limits.lowering`.

    Parameters
    ----------
    module, target
        An IRModule, of PrimFuncs and, if it has any, Relax functions; a ``tvm.target.Target``.
    compiler
        What is called with the module and the target, instead of ``tvm.compile``.
    """
    if target.kind.name != "cuda":
        return vector_math.compiled(module, target, compiler)
    import tvm

    from .cuda_limits import lowering

    with lowering(module):
        return (compiler or tvm.compile)(module, target)
