"""Static limits of CUDA kernels, checked on the lowered program before anything is compiled."""

import tvm
from tvm.s_tir import analysis
from tvm.s_tir import transform as s_tir
from tvm.tirx import transform as tirx

from .matmul_cuda import SHARED_BYTES, THREADS

LIMITS = {
    "max_threads_per_block": THREADS,
    "max_shared_memory_per_block": SHARED_BYTES,
    "max_thread_x": THREADS,
    "max_thread_y": THREADS,
    "max_thread_z": 64,
    "max_vthread": 64,
    "max_vector_bytes": 16,
}

# verify_gpu_code reads loops and allocations, so it wants the program as code generation will see it.
LOWER = tvm.transform.Sequential(
    [
        s_tir.LowerCrossThreadReduction(),
        s_tir.LowerInitBlock(),
        s_tir.PlanAndUpdateBufferAllocationLocation(),
        s_tir.ConvertBlocksToOpaque(),
        s_tir.LiftThreadBinding(),
        s_tir.ManifestSharedMemoryLocalStage(),
        s_tir.CompactBufferAllocation(),
        tirx.StmtSimplify(),
        s_tir.LowerAutoCopy(),
        s_tir.UnifyThreadBinding(),
        s_tir.LowerMatchBuffer(),
        s_tir.InjectSoftwarePipeline(),
        s_tir.LowerOpaqueBlock(),
        tirx.FlattenBuffer(),
        tirx.BF16ComputeLegalize(),
        tirx.NarrowDataType(32),
        tirx.StmtSimplify(),
        tirx.VectorizeLoop(True),
        s_tir.InjectVirtualThread(),
        s_tir.InjectDoubleBuffer(),
        tirx.StorageRewrite(),
        s_tir.MergeSharedMemoryAllocations(),
        tirx.LowerIntrin(),
    ]
)


def check_limits(module, target):
    """Raise ValueError if a scheduled module's kernel breaks one of ``LIMITS``, naming them.

    `verify_gpu_code` says only yes or no, so each limit is asked about on its own once the answer is no. What it does not
    know, registers, is left to a template's constraints.
    """
    func = module["main"].with_attr("global_symbol", "main").with_attr("target", target).with_attr("tirx.noalias", True)
    lowered = LOWER(tvm.IRModule({"main": func}))["main"]
    if analysis.verify_gpu_code(lowered, LIMITS):
        return
    broken = [f"{name} <= {limit}" for name, limit in LIMITS.items() if not analysis.verify_gpu_code(lowered, {name: limit})]
    raise ValueError(f"the kernel breaks {', '.join(broken) or 'a limit of the device'}")
