"""Runs a compiled model in a process of its own: its answer, and how long it takes.

    python -m nni_tensor_tuners.networks.runner MODEL INPUTS.npz OUTPUTS.npz SECONDS

MODEL is what `Executable.export_library` wrote, or an ONNX file, which onnxruntime runs. Prints the median latency in ms.
"""

import json
import os
import subprocess
import sys
import time
from statistics import median

from ..measure.cores import disturbed
from ..measure.lock import DeviceLock
from ..tasks.device import find_device, usable_cores

# Cores that were idle take a while to come up to speed; of the time that is asked for.
WARM_SECONDS = 0.5
# How often it is timed at most, where the cores share one (`measure.cores`) meanwhile.
ROUNDS = 4
# What runs this module.
PROGRAM = sys.executable, "-m", __name__


def run(model, inputs, outputs, seconds=1.0, program=PROGRAM):
    """The median latency in ms of a model, timed for some seconds in a fresh process that has the device alone.

    ``program`` starts it, a command that `main` is at the end of.

    Raises
    ------
    RuntimeError
        With its last line, if it fails.
    """
    environment = {**os.environ, **dict.fromkeys(("TVM_NUM_THREADS", "OMP_NUM_THREADS"), str(usable_cores()))}
    command = [*map(str, program), str(model), str(inputs), str(outputs), str(seconds)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or ["it died"])[-1])
    return json.loads(done.stdout.strip().splitlines()[-1])["latency_ms"]


def read(model, given):
    """A function that runs a model on arrays, and one that makes arrays of what it returned."""
    return (_onnx if model.endswith(".onnx") else _tvm)(model, given)


def main(model, inputs, outputs, seconds, read=read):
    """Time a model, and print what it takes; ``read`` is as this module's."""
    import numpy as np

    with np.load(inputs) as file:
        given = [file[name] for name in sorted(file.files, key=int)]
    call, arrays = read(model, given)
    device, seconds = find_device(), float(seconds)
    with DeviceLock(device).exclusive():
        answer = call()
        times(call, WARM_SECONDS * seconds)
        for _ in range(ROUNDS):
            taken = times(call, seconds)
            if device.kind != "cpu" or not disturbed():
                break
    np.savez(outputs, *arrays(answer))
    print(json.dumps({"latency_ms": median(taken) * 1e3, "runs": len(taken)}))


def times(call, seconds):
    """What each of the calls took that were made for some seconds, of one at least."""
    taken, end = [], time.perf_counter() + seconds
    while not taken or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        taken.append(time.perf_counter() - start)
    return taken


def _tvm(path, given):
    """A function that runs a model, and one that makes arrays of what it returned: the copying is not timed."""
    import tvm
    from tvm import relax

    device = tvm.cuda() if find_device().kind == "cuda" else tvm.cpu()
    machine = relax.VirtualMachine(tvm.runtime.load_module(path), device)
    arguments = [tvm.runtime.tensor(each, device) for each in given]
    main = machine["main"]

    def call():
        result = main(*arguments)
        device.sync()
        return result

    return call, lambda result: [each.numpy() for each in ([result] if hasattr(result, "numpy") else result)]


def _onnx(path, given):
    """As `_tvm`, for an ONNX file."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = usable_cores()
    session = onnxruntime.InferenceSession(path, options)
    bound = session.io_binding()
    for each, array in zip(session.get_inputs(), given):
        bound.bind_ortvalue_input(each.name, onnxruntime.OrtValue.ortvalue_from_numpy(array))
    for each in session.get_outputs():
        bound.bind_output(each.name, "cpu")
    return lambda: session.run_with_iobinding(bound), lambda _: bound.copy_outputs_to_cpu()


if __name__ == "__main__":
    main(*sys.argv[1:])
