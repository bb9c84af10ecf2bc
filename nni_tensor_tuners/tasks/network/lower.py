"""From a model to its tasks, and from their schedules to a compiled model. TVM is imported inside functions only."""

from ..compiling import compiled
from ..program import database, dlight
from ..program.definition import outermost_parallel
from ..target import target_of
from . import transposed
from .pack import packed
from .permuted import permuted
from .planes import in_planes
from .pooled import at_borders
from .rewrite import rewritten
from .winograd import transformed

# Channels last: then what vectors run along is contiguous, in images as in weights.
LAYOUTS = {
    "relax.nn.conv1d": ["NWC", "WIO"],
    "relax.nn.conv2d": ["NHWC", "HWIO"],
    "relax.nn.conv3d": ["NDHWC", "DHWIO"],
    **transposed.LAYOUTS,
}


def lowered(module, device, winograd=None):
    """A model's IRModule with its operators as PrimFuncs, fused; constants folded, images laid out channels last.

    For a CPU `Device` weights are packed (`pack`), and convolutions of the shapes in ``winograd`` (`winograd.shape_of` -> m) are
    computed in Winograd's way. exp, tanh and erf become TVM's polynomials, which vectorise, and are exact to 1e-6 or so.

    Raises
    ------
    ValueError
        In one line, if TVM has no program for an operator.
    """
    from tvm import relax

    transform, lanes = relax.transform, device.vector_lanes
    for_cpus = [
        lambda module: transformed(module, lanes, winograd or {}),
        lambda module: packed(module, lanes),
        lambda module: permuted(module, lanes),
        at_borders,
    ]
    module = _after(
        [
            *(for_cpus if device.kind == "cpu" else []),
            transform.FastMathTransform(),
            transform.LegalizeOps(),
            transform.AnnotateTIROpPattern(),
            transform.FoldConstant(),
            transform.FuseOps(),
            transform.FuseTIR(),
            transform.RewriteDataflowReshape(),  # what moves nothing is no task
            transform.DeadCodeElimination(),
        ],
        channels_last(module, device),
        device,
    )
    left = _not_lowered(module)
    if left:
        raise ValueError(f"TVM has no program for {', '.join(left)}")
    return module


def channels_last(module, device):
    """The first half of `lowered`: operators are simpler, and images lie channels last; convolutions that are not computed so, or
    not by an operator of TVM's, are programs."""
    from tvm import relax

    transform = relax.transform
    passes = [
        relax.backend.DispatchSampling(),
        relax.backend.DispatchSortScan(),
        transform.FoldBatchnormToConv2D(),
        transform.DecomposeOpsForInference(),
        transform.FoldConstant(),
        _bounds_as_operators,
        transform.ConvertLayout(LAYOUTS),
        transform.FoldConstant(),
        *([lambda module: in_planes(module, device.vector_lanes)] if device.kind == "cpu" else []),
        lambda module: transposed.without_zeros(module, device.vector_lanes),
    ]
    return _after(passes, module, device)


def _after(passes, module, device):
    with target_of(device):
        for each in passes:
            module = each(module)
    return module


def tasks(module, device):
    """The different PrimFuncs of a lowered model: (name, PrimFunc, how often it is called) of each."""
    from tvm.s_tir import meta_schedule as ms

    found = ms.relax_integration.extract_tasks(module, target_of(device))
    return [(str(each.task_name), each.dispatched[0]["main"], int(each.weight)) for each in found]


def build(module, schedules, device):
    """A lowered model as a ``relax.VMExecutable``.

    Parameters
    ----------
    module
        What `lowered` returned.
    schedules
        Pairs of a program's IRModule and an ``s_tir.Schedule`` of it. PrimFuncs without one run their outermost loops in
        parallel, and nothing else is done to them; on a GPU they have TVM's default schedules.
    device
        A `Device`.
    """
    import tvm
    from tvm import relax
    from tvm.s_tir import meta_schedule as ms

    target, known = target_of(device), ms.database.MemoryDatabase()
    for source, schedule in schedules:
        database.commit(known, source, schedule, 1.0, target)
    # Launching a small kernel takes longer than running it: those of a network are recorded at its first run, and launched as one.
    graphs = {"relax.backend.use_cuda_graph": device.kind == "cuda"}
    with target, known, tvm.transform.PassContext(opt_level=3, config=graphs):
        module = relax.transform.MetaScheduleApplyDatabase()(module)
        module = dlight.scheduled(module, device) if device.kind == "cuda" else _rest_parallel(module)
        # What `tvm.compile` does with a model, once its operators are programs.
        ends = [
            relax.transform.ToNonDataflow(),
            relax.transform.RemovePurityChecking(),
            relax.transform.CallTIRRewrite(),
            relax.transform.StaticPlanBlockMemory(),
            relax.transform.RewriteCUDAGraph(),
            relax.transform.LowerAllocTensor(),
            relax.transform.KillAfterLastUse(),
            relax.transform.LowerRuntimeBuiltin(),
            relax.transform.ComputePrimValue(),
            relax.transform.VMShapeLower(),
            relax.transform.AttachGlobalSymbol(),
        ]
        pipeline = tvm.transform.Sequential(ends)
        return compiled(module, target, lambda module, target: relax.build(module, target, relax_pipeline=pipeline))


def _rest_parallel(module):
    """A module whose PrimFuncs without a schedule have parallel outermost loops."""
    import tvm

    for variable, function in list(module.functions_items()):
        if isinstance(function, tvm.tirx.PrimFunc) and not (function.attrs and function.attrs.get("tirx.is_scheduled")):
            try:
                alone = outermost_parallel(tvm.IRModule({"main": function}))
            except Exception:  # TVM's own kinds; it is not made of blocks, and there is nothing to schedule
                continue
            module.update_func(variable, alone["main"])
    return module


def _bounds_as_operators(module):
    """Rewrite bounds (clip, and what ONNX's Clip becomes) as maximum and minimum: those keep an image's layout."""
    from tvm import relax

    def rewrite(call, name, builder):
        if name == "relax.clip":
            low, high = (_scalar(each, call.args[0]) for each in call.args[1:3])
            return relax.op.minimum(builder.emit(relax.op.maximum(call.args[0], low)), high)
        if name == "relax.call_tir":
            called, given = call.args[0].name_hint.rstrip("0123456789"), call.args[1].fields
            if called in ("maximum", "minimum") and len(given) == 2 and hasattr(given[1], "value") and not given[1].ty.shape:
                return getattr(relax.op, called)(*given)
        return call

    return rewritten(module, rewrite)


def _scalar(value, like):
    from tvm import relax

    return relax.const(float(getattr(value, "value", value)), str(like.ty.dtype))


def _not_lowered(module):
    """Relax operators that are still in a model, and are no calls of programs or of the runtime."""
    from tvm import relax
    from tvm.ir import Op

    fine = ("relax.call_tir", "relax.reshape", "relax.shape_of", "relax.call_dps_packed", "relax.call_pure_packed")
    found = []

    def visit(node):
        if isinstance(node, relax.Call) and isinstance(node.op, Op) and not node.op.name.startswith(fine):
            found.append(node.op.name.removeprefix("relax."))

    for _, function in module.functions_items():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function, visit)
    return list(dict.fromkeys(found))
