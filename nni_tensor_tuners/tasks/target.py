"""The TVM target of a device."""


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
