"""A device's static limits, checked on a CUDA kernel's lowered program before anything is compiled."""

from math import prod

import tvm
from tvm.s_tir import analysis
from tvm.s_tir import transform as s_tir
from tvm.tirx import transform as tirx

from .cuda import VTHREADS
from .target import pass_context

# On every CUDA device: threads along a block's third dimension, and bytes that one instruction copies.
THREADS_Z = 64
VECTOR_BYTES = 16

# What the scopes of tensor instructions' registers begin with, in a function's text.
FRAGMENTS = '"wmma.'

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
    ]
)
MERGE = tvm.transform.Sequential([s_tir.MergeSharedMemoryAllocations(), tirx.LowerIntrin()])

# Memory allocated at the launch is allocated again by each copy of a loop's body that unrolling makes; static one is not.
MERGE_UNROLLED = tvm.transform.Sequential([tirx.UnrollLoop(), MERGE])


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


def lowered(module, target):
    """A scheduled module's kernel as code generation will see it, as a module."""
    func = module["main"].with_attr("global_symbol", "main").with_attr("target", target).with_attr("tirx.noalias", True)
    with lowering(module):
        program = LOWER(tvm.IRModule({"main": func}))
        return MERGE_UNROLLED(program) if shared_bytes(program)[1] else MERGE(program)


def lowering(module):
    """The ``PassContext`` to lower or compile an IRModule for CUDA in, scheduled or not.

    Where tensor instructions fill shared memory of one element type and empty that of another, as float16 products that are summed
    in float32 do, TVM's StorageRewrite has both in one buffer of the first type, and then refuses the access. In this context it
    leaves them apart, and MergeSharedMemoryAllocations lays them over each other.
    """
    functions = (function for function in module.functions.values() if isinstance(function, tvm.tirx.PrimFunc))
    fragments = any(FRAGMENTS in function.script() for function in functions)
    return pass_context({"tirx.merge_static_smem": True} if fragments else {})


def shared_bytes(program):
    """Shared memory that a lowered kernel allocates: (statically, at the launch)."""
    allocated = analysis.calculate_allocated_bytes(program)["main"]
    return tuple(int(allocated.get(scope, 0)) for scope in ("shared", "shared.dyn"))


def check_limits(module, device, target):
    """Raise ValueError if a scheduled module's kernel breaks a limit of a device, naming all that it breaks.

    `verify_gpu_code` says only yes or no, so each limit is asked about on its own once the answer is no. Shared memory is
    counted here as well, because a kernel may have more of it if it is allocated dynamically; registers are left to a
    template's constraints.
    """
    program = lowered(module, target)
    static, at_launch = shared_bytes(program)
    shared = device.shared_bytes_optin if at_launch else device.shared_bytes
    limits = {
        "max_threads_per_block": device.threads,
        "max_shared_memory_per_block": shared,
        "max_thread_x": device.threads,
        "max_thread_y": device.threads,
        "max_thread_z": THREADS_Z,
        "max_vector_bytes": VECTOR_BYTES,
    }
    extents = thread_extents(module)
    grid = {"blockIdx.x": device.grid_x, "blockIdx.y": device.grid_yz, "blockIdx.z": device.grid_yz}
    broken = [f"{axis} <= {most}" for axis, most in grid.items() if extents.get(axis, 1) > most]
    if prod(extent for name, extent in extents.items() if name.startswith("vthread")) > VTHREADS:
        broken.append(f"max_vthread <= {VTHREADS}")
    if at_launch and static > device.shared_bytes:
        broken.append(f"max_static_shared_memory_per_block <= {device.shared_bytes}")
    if static + at_launch > shared:
        broken.append(f"max_shared_memory_per_block <= {shared}")
    kernel = program["main"]
    if analysis.verify_gpu_code(kernel, limits) and not broken:
        return
    broken += [f"{name} <= {limit}" for name, limit in limits.items() if not analysis.verify_gpu_code(kernel, {name: limit})]
    raise ValueError(f"the kernel breaks {', '.join(dict.fromkeys(broken)) or 'a limit of the device'}")
