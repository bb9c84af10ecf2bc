"""Real experiments for tests, started and ended through nnictl: fixtures, and what experiments left."""

import json
import os
import sqlite3
import uuid
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest
import yaml
from conftest import TESTS, wait_for

from nni_tensor_tuners.frontends.nni import manager as managers
from nni_tensor_tuners.frontends.nni.manager import Manager
from nni_tensor_tuners.search.registry import SEARCHES
from nni_tensor_tuners.study import records

TRIALS = TESTS.parent / "trials"
SMALL_SPACE = {name: {"_type": "factor", "_value": [32, parts]} for name, parts in (("X", 4), ("Y", 4), ("K", 3))}


@pytest.fixture(scope="module", autouse=True)
def registered():
    assert managers.register() == [entry.nni_name for entry in SEARCHES.values()]


@pytest.fixture
def experiment(tmp_path, monkeypatch):
    """Starts experiments, and ends them with every process they had."""
    monkeypatch.setenv("PYTHONPATH", f"{TESTS}{os.pathsep}{TESTS.parent}")  # this checkout's package, whichever is installed
    running = []

    def start(command, space, tuner="OpEvo", code=TRIALS, trials=100, concurrency=4, service=None, **more):
        named = {"name": tuner} if isinstance(tuner, str) else tuner
        content = {
            "searchSpace": space,
            "trialCommand": command,
            "trialCodeDirectory": str(code),
            "trialConcurrency": concurrency,
            "maxTrialNumber": trials,
            "experimentWorkingDirectory": str(tmp_path),
            "tuner": {**named, "classArgs": more},
            "trainingService": service or {"platform": "local"},
        }
        path = tmp_path / f"{uuid.uuid4()}.yml"
        path.write_text(yaml.safe_dump(content))
        running.append(Manager.create(path))
        return running[-1]

    def resume(experiment_id):
        running.append(Manager.resume(experiment_id))
        return running[-1]

    start.resume = resume
    yield start
    processes = [process for each in running for process in family(each)]
    with ThreadPoolExecutor() as pool:
        list(pool.map(Manager.stop, running))
    gone, alive = psutil.wait_procs(processes, timeout=20)
    assert alive == []


def family(manager):
    try:
        process = psutil.Process(manager.pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def command_of(process):
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def workers(manager):
    """Processes that measure: those that the experiment's keeper has forked."""
    keepers = [
        process
        for process in psutil.process_iter(["cmdline", "environ"])
        if "nni_tensor_tuners.measure.keeper" in (process.info["cmdline"] or ())
        and (process.info["environ"] or {}).get("NNI_EXP_ID") == manager.experiment_id
    ]
    return [process for process in keepers if any(_is_child(process, keeper) for keeper in keepers)]


def _is_child(process, parent):
    try:
        return process.ppid() == parent.pid
    except psutil.NoSuchProcess:
        return False


def ended(manager):
    def status():
        now = manager.status() if manager.is_alive() else "GONE"
        return now in ("DONE", "ERROR", "GONE") and now

    return wait_for(status, 300)  # forty trials on two cores that are busy with other tests


def journal(manager, event):
    return [entry for entry in records.read(manager.folder / records.JOURNAL) if entry["event"] == event]


def measured(manager):
    return records.read(manager.folder / records.RECORDS)


def database(manager):
    """trial id -> (parameter id, parameters, metric) as NNI's own database has them."""
    with sqlite3.connect(f"file:{manager.folder}/db/nni.sqlite?mode=ro", uri=True) as connection:
        events = connection.execute("select trialJobId, data from TrialJobEvent where data != ''").fetchall()
        metrics = connection.execute("select trialJobId, parameterId, data from MetricData where type = 'FINAL'").fetchall()
    form = {trial: json.loads(data) for trial, data in events}
    result = {trial: (int(parameter), json.loads(json.loads(data))) for trial, parameter, data in metrics}
    return form, result
