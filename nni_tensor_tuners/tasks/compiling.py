"""Compiling a module as it is best compiled for its target. TVM is imported inside functions only."""

from . import vector_math


def compiled(module, target, compiler=None):
    """``tvm.compile(module, target)``; on a CPU float32's exp, what TVM makes of it (sigmoid, exp10), erf and tanh are then vectors.

    exp is within 1 unit in the last place, subnormal results included, erf and tanh within 6. Infinity and NaN are what they are
    to libm. Other types, and vectors of other than `vector_math.LANES`, are compiled as TVM does; for CUDA see
    `cuda_limits.lowering`.

    Parameters
    ----------
    module, target
        An IRModule, of PrimFuncs and, if it has any, Relax functions; a ``tvm.target.Target``.
    compiler
        What is called with the module and the target, instead of ``tvm.compile``.
    """
    import tvm

    compiler = compiler or tvm.compile
    if target.kind.name == "llvm":
        with vector_math.lowering():
            return compiler(vector_math.linked(module), target)
    if target.kind.name == "cuda":
        from .cuda_limits import lowering

        with lowering(module):
            return compiler(module, target)
    return compiler(module, target)
