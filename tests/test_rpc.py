"""Compiled here, checked and timed behind a real TVM RPC tracker and server, on loopback."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import asdict, replace

import pytest
import tvm_ffi
from conftest import TESTS, wait_for
from faulty_template import Faulty
from tvm import rpc

from nni_tensor_tuners.cli.main import main
from nni_tensor_tuners.measure import ErrorCode, Limits, build, measure, remote
from nni_tensor_tuners.tasks.device import Device, find_device, usable_cores
from nni_tensor_tuners.tasks.matmul import Matmul

KEY = "loopback"
SMALL = Matmul(16, 24, 32)
FAULTY = Faulty(16, 24, 32)
CONFIG = {"X": [2, 2, 1, 4], "Y": [2, 1, 1, 16], "K": [3, 2, 4]}
QUICK = Limits(build_seconds=20, run_seconds=4, repeats=3, repeat_seconds=0.001)
SCRIPT = TESTS.parent / "trials" / "matmul.py"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def running(module, *arguments):
    """A module in a session of its own, which ends as a whole: TVM's leave children behind."""
    command = [sys.executable, "-m", module, *map(str, arguments), "--host", "127.0.0.1"]
    with subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            os.killpg(process.pid, signal.SIGKILL)


@contextmanager
def serving(tracker, key, stays=False):
    """A server that the tracker knows; TVM's own, or one that stays."""
    port = free_port()
    stock = ("tvm.exec.rpc_server", "--tracker", tracker, "--port-end", port + 1)
    module = ("nni_tensor_tuners", "serve", tracker) if stays else stock
    with running(*module, "--port", port, "--key", key) as process:
        wait_for(lambda: key in remote._served_keys(tracker))
        yield process


def answers(tracker):
    try:
        return remote._served_keys(tracker) is not None
    except OSError:
        return False


def queued(tracker):
    host, port = tracker.split(":")
    return rpc.connect_tracker(host, int(port)).summary()["queue_info"][KEY]["pending"]


@pytest.fixture(scope="module")
def tracker():
    port = free_port()
    with running("tvm.exec.rpc_tracker", "--port", port, "--port-end", port + 1):
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
    monkeypatch.setenv("PYTHONPATH", f"{TESTS}{os.pathsep}{TESTS.parent}")


def test_a_server_says_which_cpu_it_has(device):
    here = find_device("cpu")
    assert (device.kind, device.cores, device.key) == ("cpu", 2, KEY)
    assert (device.vector_lanes, device.vector_registers) == (here.vector_lanes, here.vector_registers)
    assert device.label() == {"kind": "cpu", "name": device.mcpu, "rpc": device.rpc, "key": KEY}
    assert remote.find_again(device.label()) == device


def test_the_answer_can_be_kept_as_json(tracker, device):
    assert Device(**json.loads(json.dumps(asdict(device)))) == device
    assert remote.find_remote_device(tracker, KEY, "cpu") == device


def test_a_kernel_compiled_here_is_checked_and_timed_there(device):
    result = measure(SMALL, CONFIG, device, QUICK)
    assert (result["error_code"], result["error"]) == (ErrorCode.NO_ERROR, "")
    assert result["tflops"] == pytest.approx(SMALL.flop / result["latency_ms"] / 1e9)


@pytest.mark.parametrize(
    "fault, code, message",
    [
        ("wrong_answer", ErrorCode.WRONG_ANSWER, "elements differ from the reference"),
        ("hangs_while_running", ErrorCode.RUN_TIMEOUT, "took longer than 4 s to run"),
    ],
)
def test_faults_have_their_error_codes_and_the_server_goes_on(device, fault, code, message):
    result = measure(FAULTY, {"fault": fault}, device, QUICK)
    assert (ErrorCode(result["error_code"]), message in result["error"]) == (code, True), result
    assert measure(SMALL, CONFIG, device, QUICK)["error_code"] == ErrorCode.NO_ERROR


def test_a_lost_server_is_an_error_of_the_device_in_bounded_time(tracker, device):
    with serving(tracker, "fragile"):
        fragile = replace(device, key="fragile")
        result = measure(FAULTY, {"fault": "aborts_while_running"}, fragile, QUICK)
        assert result["error_code"] == ErrorCode.RUNTIME_DEVICE and "\n" not in result["error"]
        start = time.monotonic()
        result = measure(SMALL, CONFIG, fragile, QUICK)
        lost = f"no server with key 'fragile' at the tracker {tracker}; keys there: {KEY}"
        assert (result["error_code"], result["error"]) == (ErrorCode.RUNTIME_DEVICE, lost)
        assert remote.RETURN_SECONDS < time.monotonic() - start < remote.RETURN_SECONDS + 20


def test_a_server_of_ours_survives_a_crash_and_has_all_cores(tracker):
    with serving(tracker, "ours", stays=True):
        ours = remote.find_remote_device(tracker, "ours")
        assert ours.cores == usable_cores()
        crashed = measure(FAULTY, {"fault": "aborts_while_running"}, ours, QUICK)
        assert crashed["error_code"] == ErrorCode.RUNTIME_DEVICE
        assert measure(SMALL, CONFIG, ours, QUICK)["error_code"] == ErrorCode.NO_ERROR


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc")
@pytest.mark.skipif(tvm_ffi.get_global_func("ffi.Module.create.cuda", allow_missing=True) is not None, reason="a CUDA driver")
def test_a_machine_without_cuda_sends_the_compiled_kernel(device, tmp_path):
    """To a server that has no GPU here, and says so; one that has takes what is checked below."""
    hopper = replace(device, kind="cuda", arch="sm_90")
    config = {"X": [2, 2, 4, 1], "Y": [4, 2, 4, 1], "K": [6, 2, 2]}
    result = measure(SMALL, config, hopper, QUICK, save=tmp_path)
    assert result["error_code"] == ErrorCode.RUNTIME_DEVICE and "cuda" in result["error"].lower(), result
    source = (tmp_path / "kernel.cu").read_text()
    assert "__global__" in source and build.BINARY not in source
    code = "import sys, tvm_ffi; from nni_tensor_tuners.measure.remote import use_binaries; use_binaries(); \
sys.stdout.buffer.write(tvm_ffi.get_global_func('tvm_callback_cuda_compile')(sys.stdin.read()))"
    exported = (tmp_path / "kernel.so").read_bytes()
    start = exported.index(build.BINARY.encode())
    sent = exported[start : exported.index(b"\n", start) + 1].decode()
    loaded = subprocess.run(
        [sys.executable, "-c", code], input=source.encode() + sent.encode(), capture_output=True, check=True
    ).stdout
    assert loaded.startswith(bytes.fromhex("50ed55ba")) and b"sm_90" in loaded  # CUDA's fat binary


def trial(*arguments):
    command = [sys.executable, str(SCRIPT), *"--n 16 --k 24 --m 32".split(), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=100)


def test_trials_that_wait_for_the_same_server_take_turns(device):
    """And the wait, here one longer than the limit for running, counts as no part of running."""
    command = [sys.executable, str(SCRIPT), *"--n 16 --k 24 --m 32 --target cpu --rpc".split(), device.rpc, "--key", KEY]
    limit = ["--run-timeout", "6", "--config", json.dumps(CONFIG)]
    first = remote.connect(remote.wait_for_server(device.rpc, KEY), 60)
    trials = [subprocess.Popen([*command, *limit], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    wait_for(lambda: queued(device.rpc) == 2)
    with pytest.raises(subprocess.TimeoutExpired):
        trials[0].wait(6.5)
    assert [each.poll() for each in trials] == [None, None] and queued(device.rpc) == 2
    del first
    results = [json.loads(each.communicate(timeout=60)[0]) for each in trials]
    assert [result["error_code"] for result in results] == [0, 0]


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--rpc", "127.0.0.1:9190"], "error: --rpc and --key: give both, or neither"),
        (["--key", "x"], "error: --rpc and --key: give both, or neither"),
        (["--rpc", "nowhere", "--key", "x"], "argument --rpc: expected HOST:PORT with a port of 1 to 65535, got 'nowhere'"),
        (["--rpc", "{nobody}", "--key", "x"], "error: rpc: no tracker answers at {nobody} ([Errno 111] Connection refused)"),
        (
            ["--rpc", "{tracker}", "--key", "x"],
            "error: rpc: no server with key 'x' at the tracker {tracker}; keys there: " + KEY,
        ),
        (["--rpc", "{tracker}", "--key", KEY, "--target", "cuda"], "error: rpc: target cuda: the server with key"),
    ],
)
def test_what_cannot_be_reached_is_one_line_in_bounded_time(tracker, device, arguments, message):
    names = {"tracker": tracker, "nobody": f"127.0.0.1:{free_port()}"}
    start = time.monotonic()
    done = trial("--describe", *(argument.format(**names) for argument in arguments))
    assert done.returncode == 2 and message.format(**names) in done.stderr.splitlines()[-1], done.stderr
    assert done.stdout == "" and time.monotonic() - start < 60


def test_the_trial_script(device):
    described = json.loads(trial("--rpc", device.rpc, "--key", KEY, "--describe").stdout)
    assert (described["kind"], described["device"]) == ("cpu", device.name)
    done = trial("--rpc", device.rpc, "--key", KEY, "--config", json.dumps(CONFIG))
    assert done.returncode == 0 and json.loads(done.stdout)["tflops"] > 0, done.stderr


def test_an_experiment_written_for_the_device_is_good(device, tmp_path, capsys):
    shape = "--n 32 --k 32 --m 32 --rpc".split()
    assert (
        main(["space", "matmul", *shape, device.rpc, "--key", KEY, "--output", str(tmp_path), "--trials", str(SCRIPT.parent)])
        == 0
    )
    assert main(["check", str(tmp_path / "opevo.yml")]) == 0
    text = (tmp_path / "opevo.yml").read_text()
    assert f" matmul --n 32 --k 32 --m 32 --rpc {device.rpc} --key {KEY}" in text and "target: cpu" in text
