"""A real experiment on NNI's training service ``remote``, whose other machine is an SSH server on loopback."""

import getpass
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from conftest import TESTS, wait_for
from nni_experiments import SMALL_SPACE, command_of, database, ended, experiment, journal, measured, registered

from nni_tensor_tuners import report
from nni_tensor_tuners.cli import main
from nni_tensor_tuners.frontends.nni import manager as managers
from nni_tensor_tuners.study import records

__all__ = ["experiment", "registered"]  # fixtures


@pytest.fixture
def machine(tmp_path):
    """What the experiment file says of the other machine, and its home."""
    home = tmp_path / "elsewhere"
    home.mkdir()
    command = [sys.executable, str(TESTS / "ssh_server.py"), str(home)]
    environment = {**os.environ, "PYTHONPATH": str(TESTS.parent)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as server:
        try:
            yield (
                {
                    "host": "127.0.0.1",
                    "port": int(server.stdout.readline()),
                    "user": getpass.getuser(),
                    "sshKeyFile": str(home / "key"),
                    "pythonPath": str(Path(sys.executable).parent),
                },
                home,
            )
            # NNI's trial keeper there ends once the manager is gone.
            wait_for(
                lambda: not any(str(home) in " ".join(command_of(p)) for p in psutil.process_iter() if p.pid != server.pid)
            )
        finally:
            server.terminate()


def test_trials_run_there_and_every_result_comes_back_to_its_configuration(machine, experiment):
    """Also over a stop, which cuts reports short, and a resume, which makes NNI run those trials again."""
    there, home = machine
    service = {"platform": "remote", "machineList": [there]}
    command = "python3 matmul.py --n 32 --k 32 --m 32 --target cpu"
    stopped = experiment(command, SMALL_SPACE, trials=4, concurrency=2, service=service)
    wait_for(lambda: measured(stopped) or not stopped.is_alive())
    stopped.stop()
    manager = experiment.resume(stopped.experiment_id)
    assert ended(manager) == "DONE"

    remembered = records.read(home / "nni-experiments" / manager.experiment_id / records.RECORDS)
    assert len(remembered) == 4 and all(record["error_code"] == 0 for record in remembered)
    form, metric = database(manager)
    asked = {entry["parameter_id"]: entry["parameters"] for entry in journal(manager, "ask")}
    here = {json.dumps(record["config"]): record for record in measured(manager)}
    assert len(here) == 4
    for record in remembered:
        trial, parameter_id = record["trial_job_id"], record["parameter_id"]
        assert form[trial]["parameters"] == record["config"] == asked[parameter_id]
        assert metric[trial][1]["default"] == record["tflops"] == here[json.dumps(record["config"])]["tflops"]
    assert report.summary(report.load(manager.folder)).startswith("4 trials (4 no_error); best ")


def test_the_port_after_the_manager_s_is_free_too():
    """Managers of remote experiments listen on both."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with managers._free_port(port - 1) as free:
            assert free > port


def test_a_trial_speaks_nni_s_older_protocol_where_there_is_no_channel(tmp_path):
    """In the environment that NNI's Kubernetes platforms give it: parameters by file, metrics by standard output."""
    config = {"X": [2, 4, 1, 4], "Y": [2, 1, 1, 16], "K": [4, 2, 4]}
    (tmp_path / "parameter.cfg").write_text(json.dumps({"parameter_id": 7, "parameters": config}))
    environment = {
        "NNI_PLATFORM": "frameworkcontroller",
        "NNI_EXP_ID": "experiment",
        "NNI_TRIAL_JOB_ID": "trial",
        "NNI_TRIAL_SEQ_ID": "3",
        "NNI_SYS_DIR": str(tmp_path),
        "NNI_OUTPUT_DIR": str(tmp_path / "output"),
        "MULTI_PHASE": "false",
    }
    (tmp_path / "output").mkdir()
    command = [sys.executable, str(TESTS.parent / "trials" / "matmul.py"), *"--n 32 --k 32 --m 32 --target cpu".split()]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("NNISDK_MEb'")]
    metric = json.loads(line.removeprefix("NNISDK_MEb'").removesuffix("'"))
    (record,) = records.read(tmp_path / "output" / records.RECORDS)
    assert (metric["parameter_id"], metric["trial_job_id"], metric["type"]) == (7, "trial", "FINAL")
    assert json.loads(metric["value"])["default"] == record["tflops"] and record["config"] == config


def test_the_shipped_experiment_is_good(capsys):
    """It is checked here, though what it is for is not."""
    key = Path("~/.ssh/id_ed25519").expanduser()  # NNI wants the file to be there
    key.parent.mkdir(exist_ok=True)
    key.touch()
    assert main(["check", str(TESTS.parent / "docs" / "remote.yml")]) == 0, capsys.readouterr().err
