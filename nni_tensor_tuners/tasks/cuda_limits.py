"""Static limits of CUDA kernels, checked on the lowered program before anything is compiled."""

from math import prod

import tvm
from tvm.s_tir import analysis
from tvm.s_tir import transform as s_tir
from tvm.tirx import transform as tirx

from .cuda import GRID_YZ, SHARED_BYTES, THREADS, THREADS_Z, VTHREADS

LIMITS = {
    "max_threads_per_block": THREADS,
    "max_shared_memory_per_block": SHARED_BYTES,
    "max_thread_x": THREADS,
    "max_thread_y": THREADS,
    "max_thread_z": THREADS_Z,
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


def thread_extents(module):
    """Thread name -> extent of a scheduled module's one kernel, such as {"blockIdx.x": 4}."""
    extents, statements = {}, [module["main"].body]
    while statements:
        statement = statements.pop()
        if isinstance(statement, tvm.tirx.For) and statement.thread_binding is not None:
            extents[str(statement.thread_binding.thread_tag)] = int(statement.extent)
        inside = [getattr(statement, name, None) for name in ("body", "block", "then_case", "else_case")]
        statements += [*getattr(statement, "seq", ()), *(part for part in inside if part is not None)]
    return extents


def check_limits(module, target):
    """Raise ValueError if a scheduled module's kernel breaks one of ``LIMITS``, naming them.

    `verify_gpu_code` says only yes or no, so each limit is asked about on its own once the answer is no. What it does not
    know, registers, is left to a template's constraints.
    """
    extents = thread_extents(module)
    broken = [f"{axis} <= {GRID_YZ}" for axis in ("blockIdx.y", "blockIdx.z") if extents.get(axis, 1) > GRID_YZ]
    if prod(extent for name, extent in extents.items() if name.startswith("vthread")) > VTHREADS:
        broken.append(f"max_vthread <= {VTHREADS}")
    func = module["main"].with_attr("global_symbol", "main").with_attr("target", target).with_attr("tirx.noalias", True)
    lowered = LOWER(tvm.IRModule({"main": func}))["main"]
    if analysis.verify_gpu_code(lowered, LIMITS) and not broken:
        return
    broken += [f"{name} <= {limit}" for name, limit in LIMITS.items() if not analysis.verify_gpu_code(lowered, {name: limit})]
    raise ValueError(f"the kernel breaks {', '.join(broken) or 'a limit of the device'}")
