"""A real experiment on NNI's training service ``remote``, whose other machine is an SSH server on loopback."""

import getpass
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from conftest import TESTS, wait_for
from nni_experiments import SMALL_SPACE, command_of, database, ended, experiment, journal, measured, registered

from nni_tensor_tuners import records, report

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
                lambda: not any(str(home) in " ".join(command_of(p)) for p in psutil.process_iter() if p != server_of(server))
            )
        finally:
            server.terminate()


def server_of(server):
    return psutil.Process(server.pid)


def test_trials_run_there_and_every_result_comes_back_to_its_configuration(machine, experiment):
    there, home = machine
    service = {"platform": "remote", "machineList": [there]}
    manager = experiment(
        "python3 matmul.py --n 32 --k 32 --m 32 --target cpu", SMALL_SPACE, trials=3, concurrency=2, service=service
    )
    assert ended(manager) == "DONE"
    remembered = records.read(home / "nni-experiments" / manager.experiment_id / records.RECORDS)
    assert len(remembered) == 3 and all(record["error_code"] == 0 for record in remembered)
    form, metric = database(manager)
    asked = {entry["parameter_id"]: entry["parameters"] for entry in journal(manager, "ask")}
    here = {record["parameter_id"]: record for record in measured(manager)}
    for record in remembered:
        trial, parameter_id = record["trial_job_id"], record["parameter_id"]
        assert form[trial]["parameters"] == record["config"] == asked[parameter_id] == here[parameter_id]["config"]
        assert metric[trial][1]["default"] == record["tflops"] == here[parameter_id]["tflops"]
    assert report.summary(report.load(manager.folder)).startswith("3 trials (3 no_error); best ")
