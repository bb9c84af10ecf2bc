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

from ..measure.lock import DeviceLock
from ..tasks.device import find_device, usable_cores

# Cores that were idle take a while to come up to speed; of the time that is asked for.
WARM_SECONDS = 0.5


def run(model, inputs, outputs, seconds=1.0):
    """The median latency in ms of a model, timed for some seconds in a fresh process that has the device alone.

    Raises
    ------
    RuntimeError
        With its last line, if it fails.
    """
    environment = {**os.environ, **dict.fromkeys(("TVM_NUM_THREADS", "OMP_NUM_THREADS"), str(usable_cores()))}
    command = [sys.executable, "-m", __name__, str(model), str(inputs), str(outputs), str(seconds)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or ["it died"])[-1])
    return json.loads(done.stdout.strip().splitlines()[-1])["latency_ms"]


def main(model, inputs, outputs, seconds):
    import numpy as np

    with np.load(inputs) as file:
        given = [file[name] for name in sorted(file.files, key=int)]
    call = _onnx(model, given) if model.endswith(".onnx") else _tvm(model, given)
    with DeviceLock(find_device()).exclusive():
        start = time.perf_counter()
        answer = call()
        while time.perf_counter() - start < WARM_SECONDS * float(seconds):
            call()
        times, end = [], time.perf_counter() + float(seconds)
        while not times or time.perf_counter() < end:
            start = time.perf_counter()
            answer = call()
            times.append(time.perf_counter() - start)
    np.savez(outputs, *[np.asarray(each) for each in answer])
    print(json.dumps({"latency_ms": median(times) * 1e3, "runs": len(times)}))


def _tvm(path, given):
    import tvm
    from tvm import relax

    device = tvm.cuda() if find_device().kind == "cuda" else tvm.cpu()
    machine = relax.VirtualMachine(tvm.runtime.load_module(path), device)
    arguments = [tvm.runtime.tensor(each, device) for each in given]

    def call():
        result = machine["main"](*arguments)
        device.sync()
        return [result.numpy()] if hasattr(result, "numpy") else [each.numpy() for each in result]

    return call


def _onnx(path, given):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = usable_cores()
    session = onnxruntime.InferenceSession(path, options)
    arguments = dict(zip((each.name for each in session.get_inputs()), given))
    return lambda: session.run(None, arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])
