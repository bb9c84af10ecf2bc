"""The device that trials run on and what it allows, found without importing TVM, so that naming it is cheap."""

import ctypes
import os
import platform
from dataclasses import dataclass

KINDS = ("cuda", "cpu")

# Overrides "auto" everywhere: for the trials, and for the tuner that chooses their constraints.
TARGET_VARIABLE = "TENSOR_TUNERS_TARGET"


# Limits that the driver says, by their CUdevice_attribute in cuda.h; how many registers a thread may have it does not.
CAPABILITY_MAJOR, CAPABILITY_MINOR = 75, 76
ATTRIBUTES = {"threads": 1, "shared_bytes": 8, "shared_bytes_optin": 97, "grid_x": 5, "grid_yz": 6}


@dataclass(frozen=True)
class Device:
    """What templates and measurements need to know of a device.

    Attributes
    ----------
    kind
        "cuda" or "cpu".
    name
        As the hardware calls itself.
    identity
        Tells apart devices of one machine.
    arch
        For CUDA the compute capability, such as "sm_90"; else "".
    cores
        CPU cores this process may use; 0 for CUDA.
    vector_lanes, vector_registers
        float32 lanes in a CPU vector register, and the number of such registers; 0 for CUDA.
    rpc, key
        Of a remote device, the tracker's HOST:PORT and the key its servers have there; else "".
    mcpu
        LLVM's name for the CPU of a remote device's machine; "" is this one's.
    threads, registers
        For CUDA (as all that follows), the most threads of a block and 32-bit registers of a thread.
    shared_bytes, shared_bytes_optin
        The most shared memory of a block, allocated statically and on the program's request.
    grid_x, grid_yz
        The most blocks along the grid's first dimension and along each of the others.
    """

    kind: str
    name: str
    identity: str
    arch: str = ""
    cores: int = 0
    vector_lanes: int = 0
    vector_registers: int = 0
    rpc: str = ""
    key: str = ""
    mcpu: str = ""
    threads: int = 1024
    registers: int = 255
    shared_bytes: int = 49152
    shared_bytes_optin: int = 49152
    grid_x: int = 2**31 - 1
    grid_yz: int = 65535

    def label(self):
        """What records say of the device: its kind and name, and of a remote one how it was reached."""
        return {"kind": self.kind, "name": self.name, **({"rpc": self.rpc, "key": self.key} if self.rpc else {})}


# Compute capability -> most shared memory of a block in KiB, where it is more than the 48 that all since 2.0 have (CUDA C++
# programming guide, technical specifications per compute capability).
SHARED_KIB = {
    **{"70": 96, "72": 96, "75": 64, "80": 163, "86": 99, "87": 163, "88": 99, "89": 99, "90": 227},
    **{"100": 227, "101": 227, "103": 227, "110": 227, "120": 99, "121": 99},
}

# Stand for all devices of a kind where an experiment is written to run on any of them: the limits that all NVIDIA GPUs since
# compute capability 3.5 keep; the narrowest vectors of one common CPU, the largest register file of another.
GENERIC = {
    "cuda": Device("cuda", "any NVIDIA GPU", "cuda", arch="sm_80"),
    "cpu": Device("cpu", "any CPU", "cpu", cores=2, vector_lanes=8, vector_registers=64),
}


def find_device(target="auto"):
    """The device for a target: "cuda", "cpu", or "auto", which is the first GPU where there is one, else the CPU.

    Raises
    ------
    ValueError
        For another target, or for "cuda" on a machine without a usable GPU.
    """
    target = wanted(target)
    gpu = _first_gpu() if target != "cpu" else None
    if target == "cuda" and gpu is None:
        raise ValueError("target cuda: no usable NVIDIA GPU found (is the driver loaded, and CUDA_VISIBLE_DEVICES not empty?)")
    return gpu or _cpu()


def wanted(target):
    """A target as the environment variable overrides it; ValueError if there is none of that name."""
    if target == "auto":
        target = os.environ.get(TARGET_VARIABLE) or "auto"
    if target not in ("auto", *KINDS):
        raise ValueError(f"unknown target {target!r}; allowed: auto, {', '.join(KINDS)}")
    return target


def kind_of(target="auto"):
    """The device kind a target names. One that is named need not be on this machine: trials may run elsewhere."""
    return target if target in KINDS else find_device(target).kind


def limits_of(arch):
    """A CUDA device's limits by its compute capability ("sm_90"), as fields of `Device`."""
    capability = int(arch.removeprefix("sm_").rstrip("af"))
    return {
        "registers": 255 if capability >= 35 or capability == 32 else 63,
        "shared_bytes_optin": SHARED_KIB.get(str(capability), 48) * 1024,
        "grid_x": 2**31 - 1 if capability >= 30 else 65535,
    }


def usable_cores():
    """CPU cores that this process may run on."""
    return len(os.sched_getaffinity(0))


def _cpu():
    info = _cpu_info()
    flags = f" {info.get('flags') or info.get('Features') or ''} "
    lanes, registers = vector_file(lambda flag: f" {flag} " in flags, platform.machine())
    name = info.get("model name") or platform.machine()
    return Device("cpu", name, "cpu", cores=usable_cores(), vector_lanes=lanes, vector_registers=registers)


def vector_file(has, machine):
    """float32 lanes of a vector register and the number of registers, of a CPU of which ``has(flag)`` says what it can do."""
    if has("avx512f"):
        return 16, 32
    if has("avx"):
        return 8, 16
    return 4, 32 if machine in ("aarch64", "arm64") else 16


def _cpu_info():
    """The first processor's entry of /proc/cpuinfo, empty where there is none."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            entry = file.read().split("\n\n")[0]
    except OSError:
        return {}
    return {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in entry.splitlines())}


def _first_gpu():
    """The first GPU that CUDA shows to this process, or None."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    handle, name, uuid = ctypes.c_int(), ctypes.create_string_buffer(128), (ctypes.c_ubyte * 16)()
    calls = (
        lambda: cuda.cuInit(0),
        lambda: cuda.cuDeviceGet(ctypes.byref(handle), 0),
        lambda: cuda.cuDeviceGetName(name, len(name), handle),
        lambda: cuda.cuDeviceGetUuid(uuid, handle),
    )
    if any(call() != 0 for call in calls):  # 0 is CUDA_SUCCESS; no device makes cuDeviceGet fail
        return None

    def asked(attribute):
        value = ctypes.c_int()
        return value.value if cuda.cuDeviceGetAttribute(ctypes.byref(value), attribute, handle) == 0 else None

    major, minor = asked(CAPABILITY_MAJOR), asked(CAPABILITY_MINOR)
    if major is None or minor is None:
        return None
    arch = f"sm_{major}{minor}"
    said = {field: value for field, value in ((f, asked(number)) for f, number in ATTRIBUTES.items()) if value}
    return Device("cuda", name.value.decode(), f"cuda-{bytes(uuid).hex()}", arch=arch, **{**limits_of(arch), **said})
