"""From a configuration to a function that TVM can run."""

import os
import shutil

import tvm  # noqa: F401  before a keeper forks: it imports this module for that

from ..tasks.compiling import compiled
from ..tasks.cuda_limits import check_limits

# Before a kernel's binary, at the end of its CUDA source, where `remote.compile_cuda_here` sends it along.
BINARY = "// compiled by tensor-tuners: "


def instantiate(task, config, device, target):
    """The scheduled module of a configuration.

    Parameters
    ----------
    task, config, device
        A `Task`, a configuration, a `Device`.
    target
        What `target_of` returns for the device.

    Raises
    ------
    Exception
        Whatever the task raises (TVM's ScheduleError is no ValueError); ValueError if a CUDA kernel breaks a limit.
    """
    module = task.module(config, device)
    if device.kind == "cuda":
        check_limits(module, device, target)
    return module


def compile_module(module, target):
    """Compile a scheduled module; the machine code exists when this returns (LLVM otherwise generates it at the first call).

    Raises
    ------
    RuntimeError
        From TVM; `is_device_error` tells what failed.
    """
    if target.kind.name == "cuda" and shutil.which("nvcc"):
        os.environ.setdefault("TVM_CUDA_COMPILE_MODE", "nvcc")  # else nvrtc, which needs the package cuda-bindings
    library = compiled(module, target)
    library.mod["main"]
    return library


def is_device_error(error):
    """Whether a compilation error came from the device's compiler (nvcc, nvrtc), not from TVM or LLVM."""
    text = str(error).lower()
    return any(word in text for word in ("compilation error", "nvcc", "nvrtc", "ptxas"))


def device_source(library):
    """The CUDA source of a compiled library, or None if it has none."""
    sources = (module.inspect_source() for module in library.mod.imports if module.kind == "cuda")
    return next((source.partition(BINARY)[0] for source in sources), None)
