"""Devices behind a TVM RPC tracker: compile here, check and time there.

The tracker lends a server to one client at a time and keeps the others waiting in order: that is the lock which `DeviceLock` is
for this machine's devices. Run as a module, this asks a server what it is and prints that as JSON.
"""

import base64
import json
import os
import platform
import select
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, replace

from ..tasks.device import Device, find_device, limits_of, vector_file, wanted
from .child import die_with_parent, first_line

# NumPy and TVM are imported inside functions, as in the worker.

# A tracker answers within milliseconds.
ANSWER_SECONDS = 10
# How long a key may be without any server while a trial waits; a server that restarts is back by then.
RETURN_SECONDS = 6
# To ask a device what it is, until a server is free included. `tensor-tuners check` waits a minute.
ASK_SECONDS = 50
POLL_SECONDS = 0.5


def find_remote_device(rpc, key, target="auto"):
    """The device that the servers of a tracker have, as they say themselves; all of one key are taken to be alike.

    Parameters
    ----------
    rpc, key
        The tracker's HOST:PORT, and the servers' key.
    target
        As for `find_device`: "auto" is a GPU where the server has one, else its CPU.

    Raises
    ------
    ValueError
        In one line: no tracker, no such key, no such device.
    """
    command = [sys.executable, "-m", __name__, rpc, key, wanted(target)]
    try:
        asked = subprocess.run(command, capture_output=True, text=True, check=False, timeout=ASK_SECONDS)
    except subprocess.TimeoutExpired:
        raise ValueError(f"rpc: the servers with key {key!r} at {rpc} were busy or silent for {ASK_SECONDS} s") from None
    try:
        answer = json.loads(asked.stdout)
    except ValueError:
        raise ValueError(f"rpc: {first_line(asked.stderr or 'asking the device failed')}") from None
    if "error" in answer:
        raise ValueError(f"rpc: {answer['error']}")
    return Device(**answer)


def find_again(label):
    """The device of a record, from what `Device.label` says of it; ValueError if it is not there any more."""
    if "rpc" in label:
        return find_remote_device(label["rpc"], label["key"], label["kind"])
    return find_device(label["kind"])


def main(rpc, key, target):
    """Print the device behind a key as JSON, or ``{"error": ...}``."""
    die_with_parent()
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # libraries print to standard output
    try:
        answer = asdict(_describe(connect(wait_for_server(rpc, key), ASK_SECONDS), rpc, key, target))
    except Exception as error:
        answer = {"error": first_line(error)}
    answers.write(json.dumps(answer))
    answers.flush()


def _describe(session, rpc, key, target):
    import tvm

    try:
        mcpu, triple = (session.get_function(f"target.llvm_get_system_{what}")() for what in ("cpu", "triple"))
    except Exception:
        raise ValueError("the server runs TVM without LLVM, so it cannot say which CPU it has") from None
    machine, here = triple.split("-")[0], tvm.target.codegen.llvm_get_system_triple().split("-")[0]
    if machine != here:
        raise ValueError(f"the server is {machine}, this machine {here}: cross-compiling is not supported")
    place = Device("cpu", mcpu, "remote", rpc=rpc, key=key, mcpu=mcpu)
    gpu = session.cuda()
    if target != "cpu" and gpu.exist:
        arch = f"sm_{gpu.compute_version.replace('.', '')}"
        said = {"threads": gpu.max_threads_per_block, "shared_bytes": gpu.max_shared_memory_per_block}
        return replace(place, kind="cuda", name=gpu.device_name, arch=arch, **limits_of(arch), **said)
    if target == "cuda":
        raise ValueError(f"target cuda: the server with key {key!r} has no usable NVIDIA GPU")
    cpu = tvm.target.Target({"kind": "llvm", "mcpu": mcpu})
    lanes, registers = vector_file(lambda flag: tvm.target.codegen.llvm_cpu_has_features(flag, cpu), platform.machine())
    cores = session.get_function("runtime.NumThreads")()
    return replace(place, cores=cores, vector_lanes=lanes, vector_registers=registers)


def wait_for_server(rpc, key, absent_seconds=0.0):
    """Queue at the tracker until it lends a server, however long others hold them; returns what `connect` takes.

    Parameters
    ----------
    rpc, key
        The tracker's HOST:PORT, and the servers' key.
    absent_seconds
        How long to wait while no server has the key, busy or free.

    Raises
    ------
    OSError
        In one line: the tracker cannot be reached, or has no server with this key.
    """
    from tvm.rpc import base

    absent_since = None
    try:
        with _tracker(rpc) as queue:
            base.sendjson(queue, [base.TrackerCode.REQUEST, key, "", 1])
            while True:
                served = _served_keys(rpc)
                if key in served:
                    absent_since = None
                elif time.monotonic() - (absent_since := absent_since or time.monotonic()) >= absent_seconds:
                    raise LookupError(
                        f"no server with key {key!r} at the tracker {rpc}; keys there: {', '.join(served) or 'none'}"
                    )
                if select.select([queue], [], [], POLL_SECONDS)[0]:
                    return tuple(base.recvjson(queue)[1])
    except LookupError as error:
        raise OSError(*error.args) from None
    except OSError as error:
        raise OSError(f"no tracker answers at {rpc} ({error})") from None


def _tracker(rpc):
    """A connection to a tracker; OSError if none listens there."""
    from tvm.rpc import base

    host, _, port = rpc.rpartition(":")
    connection = socket.create_connection((host, int(port)), timeout=ANSWER_SECONDS)
    magic = struct.pack("<i", base.RPC_TRACKER_MAGIC)
    connection.sendall(magic)
    if base.recvall(connection, len(magic)) != magic:
        connection.close()
        raise OSError("what listens there is something else")
    return connection


def _served_keys(rpc):
    """The keys for which a tracker has servers, lent ones too."""
    from tvm.rpc import base

    with _tracker(rpc) as connection:
        base.sendjson(connection, [base.TrackerCode.SUMMARY])
        servers = base.recvjson(connection)[1]["server_info"]
    return sorted({server["key"].partition(":")[2] for server in servers})


def connect(server, seconds):
    """A session with a server lent by the tracker, which ends it after some seconds, whatever runs in it."""
    from tvm import rpc

    return rpc.connect(*server, session_timeout=seconds)


def compile_cuda_here():
    """Have nvcc compile kernels on this machine also when it has no CUDA driver.

    TVM would then send source, for the server to compile while it holds the device. So the binary goes along with the source,
    in a comment that `tensor-tuners serve` finds, and any other server takes for one.
    """
    import tvm_ffi
    from tvm.support import nvcc

    from .build import BINARY

    def attach(code, target):
        with target:  # which says for which architecture
            binary = nvcc.compile_cuda(code, target_format="fatbin", compiler="nvcc")
        return f"{code}\n{BINARY}{base64.b64encode(binary).decode()}\n"

    if shutil.which("nvcc") and tvm_ffi.get_global_func("ffi.Module.create.cuda", allow_missing=True) is None:
        tvm_ffi.register_global_func("tvm_callback_cuda_postproc", attach, override=True)


def use_binaries():
    """Have this process, a server, take the binary that `compile_cuda_here` sent along."""
    import tvm_ffi
    from tvm.support import nvcc

    from .build import BINARY

    def load(code):
        _, sent, binary = code.rpartition(BINARY)
        return base64.b64decode(binary) if sent else nvcc.tvm_callback_cuda_compile(code)

    if shutil.which("nvcc"):
        os.environ.setdefault("TVM_CUDA_COMPILE_MODE", "nvcc")
    tvm_ffi.register_global_func("tvm_callback_cuda_compile", load, override=True)


def export(library):
    """A compiled library as the bytes of a shared object; RuntimeError if it cannot be linked."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "kernel.so")
        library.export_library(path)
        with open(path, "rb") as file:
            return bytearray(file.read())


def opened(server, exported, kind, run_seconds):
    """The worker's `opened_here` for a server that `wait_for_server` returned."""
    import tvm

    # We are killed at the limit; the server then ends what still runs there, and is free for the next.
    session = connect(server, run_seconds + 1)
    where = session.device(kind)
    session.upload(exported, "kernel.so")
    return session.load_module("kernel.so"), where, lambda array: tvm.runtime.tensor(array, where)


if __name__ == "__main__":
    main(*sys.argv[1:])
