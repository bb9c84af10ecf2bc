"""The TVM target of a device, and the device of a target."""

from dataclasses import replace

from .device import GENERIC, find_device, limits_of


def target_of(device):
    """The TVM target of a `Device`. Targets take their options only as a dict, and a generic one costs most of the speed."""
    import tvm

    mcpu = device.mcpu or tvm.target.codegen.llvm_get_system_cpu()
    if device.kind == "cuda":
        return tvm.target.Target(
            {
                "kind": "cuda",
                "arch": device.arch,
                "max_threads_per_block": device.threads,
                "max_shared_memory_per_block": device.shared_bytes,
            },
            host={"kind": "llvm", "mcpu": mcpu},
        )
    return tvm.target.Target({"kind": "llvm", "mcpu": mcpu, "num-cores": device.cores})


def device_of(target):
    """A `Device` that a TVM target describes; a CPU's is this machine's."""
    if target.kind.name != "cuda":
        return find_device("cpu")
    arch = str(target.arch)
    return replace(GENERIC["cuda"], name=arch, identity=arch, arch=arch, **limits_of(arch))


def pass_context(options):
    """TVM's current ``PassContext``, with further options."""
    import tvm

    now = tvm.transform.PassContext.current()
    return tvm.transform.PassContext(opt_level=now.opt_level, config={**now.config, **options})


def bare_context(module, target):
    """MetaSchedule's ``TuneContext``, without reading the tensor instructions of all devices first, which takes ten seconds."""
    from tvm.s_tir import meta_schedule as ms
    from tvm.s_tir.meta_schedule import _ffi_api

    context = ms.TuneContext.__new__(ms.TuneContext)
    context.__init_handle_by_constructor__(_ffi_api.TuneContext, module, target, None, None, "main", 1, 1, None)
    return context
