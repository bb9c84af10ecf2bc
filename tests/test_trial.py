"""What a trial makes of the records that are there before it."""

import json
from types import SimpleNamespace

import pytest

from nni_tensor_tuners.frontends.nni import trial
from nni_tensor_tuners.measure import Limits
from nni_tensor_tuners.study import records
from nni_tensor_tuners.tasks.conv import Conv
from nni_tensor_tuners.tasks.device import find_device
from nni_tensor_tuners.tasks.matmul import Matmul

TASK = Matmul(32, 32, 32)
CPU = find_device("cpu")


def client(folder, config, parameter_id=0):
    return SimpleNamespace(
        experiment_folder=folder,
        parameters=lambda: config,
        parameter_id=parameter_id,
        trial_job_id="trial",
        sequence_id=0,
    )


def record(of, latency_ms, config, device=CPU, **more):
    plain = json.loads(json.dumps(of.to_dict()))
    numbers = {"error_code": 0, "tflops": 1 / latency_ms, "latency_ms": latency_ms}
    return {"config": config, "workload": plain, "device": device.label(), **numbers, **more}


@pytest.fixture
def told(monkeypatch):
    """What `measure` is told to be the best latency so far, trial after trial."""
    bests = []

    def measure(task, config, device, limits, best_latency_ms, cold):
        bests.append(best_latency_ms)
        return {"error_code": 0, "error": "", "tflops": 1.0, "latency_ms": 1.0}

    monkeypatch.setattr(trial, "measure", measure)
    return bests


def test_another_task_s_latency_does_not_shorten_a_timing(tmp_path, told):
    path = tmp_path / records.RECORDS
    conv = Conv(1, 4, (8, 8), 4, (3, 3))
    records.append(path, record(Matmul(16, 16, 16), 0.01, {"i": 0}, task=Matmul(16, 16, 16).id))
    records.append(path, record(conv, 0.02, {"i": 1}))  # of a version that wrote no task ids
    trial._measure_once(client(tmp_path, {"i": 2}), TASK, CPU, Limits())
    records.append(path, record(TASK, 0.5, {"i": 3}, task=TASK.id))
    trial._measure_once(client(tmp_path, {"i": 4}), TASK, CPU, Limits())
    trial._measure_once(client(tmp_path, {"i": 5}), conv, CPU, Limits())
    assert told == [None, 0.5, 0.02]


def test_a_record_without_a_task_id_is_known_by_its_shape(tmp_path, told):
    path = tmp_path / records.RECORDS
    known = record(TASK, 3.0, {"i": 0}, trial_job_id="before")
    records.append(path, known)
    assert trial._measure_once(client(tmp_path, {"i": 0}), TASK, CPU, Limits()) == known
    assert told == []


def test_every_record_has_its_task(tmp_path, told):
    trial._measure_once(client(tmp_path, {"i": 0}), TASK, CPU, Limits())
    (written,) = records.read(tmp_path / records.RECORDS)
    assert written["task"] == TASK.id and written["workload"] == TASK.to_dict()
