"""Compiled here, checked and timed behind a real TVM RPC tracker and server, on loopback."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import TESTS, wait_for

from nni_tensor_tuners.device import find_device
from nni_tensor_tuners.measure import ErrorCode, Limits, measure
from nni_tensor_tuners.measure import remote
from nni_tensor_tuners.workloads import Matmul

KEY = "loopback"
SMALL = Matmul(16, 24, 32)
CONFIG = {"X": [2, 2, 1, 4], "Y": [2, 1, 1, 16], "K": [3, 2, 4]}
QUICK = Limits(build_seconds=20, run_seconds=4, repeats=3, repeat_seconds=0.001)
SCRIPT = TESTS.parent / "trials" / "matmul.py"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def running(module, *arguments):
    """A command of TVM's in a session of its own, which ends as a whole: it leaves children behind."""
    command = [sys.executable, "-m", f"tvm.exec.{module}", "--host", "127.0.0.1", *map(str, arguments)]
    with subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            os.killpg(process.pid, signal.SIGKILL)


@contextmanager
def serving(tracker, key):
    port = free_port()
    with running("rpc_server", "--port", port, "--port-end", port + 1, "--tracker", tracker, "--key", key) as process:
        wait_for(lambda: key in remote._served_keys(tracker))
        yield process


def answers(tracker):
    try:
        return remote._served_keys(tracker) is not None
    except OSError:
        return False


@pytest.fixture(scope="module")
def tracker():
    port = free_port()
    with running("rpc_tracker", "--port", port, "--port-end", port + 1):
        wait_for(lambda: answers(f"127.0.0.1:{port}"))
        yield f"127.0.0.1:{port}"


@pytest.fixture(scope="module")
def device(tracker):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TVM_NUM_THREADS", "2")
        with serving(tracker, KEY):
            yield remote.find_remote_device(tracker, KEY)


@pytest.fixture(autouse=True)
def _template_is_importable(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")]))


def test_a_server_says_which_cpu_it_has(device):
    here = find_device("cpu")
    assert (device.kind, device.cores, device.key) == ("cpu", 2, KEY)
    assert (device.vector_lanes, device.vector_registers) == (here.vector_lanes, here.vector_registers)
    assert device.label() == {"kind": "cpu", "name": device.mcpu, "rpc": device.rpc, "key": KEY}
    assert remote.find_again(device.label()) == device


def test_a_kernel_compiled_here_is_checked_and_timed_there(device, monkeypatch):
    result = measure(SMALL, CONFIG, device, QUICK)
    assert (result["error_code"], result["error"]) == (ErrorCode.NO_ERROR, "")
    assert result["tflops"] == pytest.approx(SMALL.flop / result["latency_ms"] / 1e9)
