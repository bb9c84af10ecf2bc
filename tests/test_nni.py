"""Real experiments: nnictl, its manager, its dispatcher, its trials."""

import contextlib
import json
import signal
import socket
import subprocess
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest
from conftest import TESTS, wait_for
from nni_experiments import (
    SMALL_SPACE,
    command_of,
    database,
    ended,
    experiment,
    family,
    journal,
    measured,
    registered,
    workers,
)

from nni_tensor_tuners import report
from nni_tensor_tuners.frontends.nni import manager as managers
from nni_tensor_tuners.frontends.nni import rest
from nni_tensor_tuners.search.registry import SEARCHES
from nni_tensor_tuners.space.nested import flatten
from nni_tensor_tuners.study import records

__all__ = ["experiment", "registered"]  # fixtures

SMALL = "--n 32 --k 32 --m 32 --target cpu"


def test_tuner_database_and_trial_agree_about_every_trial(experiment):
    manager = experiment(f"python3 matmul.py {SMALL}", SMALL_SPACE, trials=24, concurrency=4)

    listening = [c.laddr.ip for c in psutil.Process(manager.pid).net_connections("inet") if c.status == psutil.CONN_LISTEN]
    assert listening and set(listening) == {"127.0.0.1"}

    assert ended(manager) == "DONE"
    form, metric = database(manager)
    asked = {entry["parameter_id"]: entry["parameters"] for entry in journal(manager, "ask")}
    told = {entry["parameter_id"]: entry for entry in journal(manager, "tell")}
    trials = {record["trial_job_id"]: record for record in measured(manager)}
    assert len(trials) == len(form) == len(metric) == len(told) == 24
    for trial, record in trials.items():
        parameter_id = record["parameter_id"]
        assert form[trial]["parameter_id"] == parameter_id == metric[trial][0]
        assert form[trial]["parameters"] == record["config"] == asked[parameter_id] == told[parameter_id]["parameters"]
        assert metric[trial][1]["default"] == record["tflops"] == told[parameter_id]["fitness"]
        assert set(metric[trial][1]) == {"default", "tflops", "latency_ms", "spread", "compile_seconds", "error_code"}


def test_a_port_is_given_to_one_at_a_time_whatever_folder_they_share():
    """Processes with temporary folders of their own have no lock in common."""
    give = "from nni_tensor_tuners.frontends.nni import manager\nwith manager._free_port(20000) as port: print(port, flush=True); input()"
    options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", give], **options) as holder:
        held = int(holder.stdout.readline())
        with managers._free_port(held) as other:
            assert other != held
        holder.communicate("\n")
    with managers._free_port(held) as again:
        assert again == held


def test_experiments_started_at_once_have_ports_of_their_own(experiment):
    space = {"i": {"_type": "randint", "_value": [0, 2]}, "kind": {"_type": "choice", "_value": ["good"]}}
    with ThreadPoolExecutor() as pool:
        starts = [pool.submit(experiment, "python3 plain.py", space, code=TESTS / "trials") for _ in range(2)]
    first, second = (start.result() for start in starts)
    assert first.url != second.url
    assert ended(first) == ended(second) == "DONE"


def test_a_port_that_another_takes_meanwhile_is_left_to_it(experiment, monkeypatch):
    space, free = (
        {"kind": {"_type": "choice", "_value": ["dict", "dies"]}, "i": {"_type": "randint", "_value": [0, 1]}},
        managers._free_port,
    )
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        monkeypatch.setattr(managers, "_free_port", lambda first: free(first) if first > 8080 else contextlib.nullcontext(port))
        manager = experiment("python3 plain.py", space, code=TESTS / "trials")
        assert not manager.url.endswith(f":{port}")
        assert ended(manager) == "DONE"


def test_a_trial_that_dies_before_it_asks_shifts_no_other(experiment):
    manager = experiment(f"python3 dead_on_arrival.py {SMALL}", SMALL_SPACE, code=TESTS / "trials", trials=12, concurrency=3)
    assert ended(manager) == "DONE"
    form, metric = database(manager)
    asked = {entry["parameter_id"]: entry["parameters"] for entry in journal(manager, "ask")}
    reported = [record for record in measured(manager) if "trial_job_id" in record]
    dead = [record for record in measured(manager) if "trial_job_id" not in record]
    assert (len(reported), len(dead)) == (8, 4)
    for record in reported:
        trial = record["trial_job_id"]
        assert form[trial]["parameters"] == record["config"] == asked[metric[trial][0]]
    assert {record["error_code"] for record in dead} == {8}
    assert not any(record["config"] in [other["config"] for other in reported] for record in dead)


@pytest.mark.parametrize("kill", [True, False], ids=["killed dispatcher", "stopped"])
def test_stop_and_resume(experiment, kill):
    manager = experiment(f"python3 matmul.py {SMALL}", SMALL_SPACE, trials=16, concurrency=4)
    wait_for(lambda: len(measured(manager)) >= 5)
    if kill:
        (dispatcher,) = [p for p in family(manager) if command_of(p)[1:3] == ["-m", "nni"]]
        dispatcher.send_signal(signal.SIGKILL)
        # The trials that are running measure on, and have nobody left to tell.
        wait_for(lambda: not workers(manager))
    else:
        wait_for(lambda: len(workers(manager)) >= 3)  # these will be cut short
    manager.stop()
    before = measured(manager)

    resumed = experiment.resume(manager.experiment_id)
    assert ended(resumed) == "DONE"
    after = measured(resumed)
    assert after[: len(before)] == before
    configs = [json.dumps(record["config"]) for record in after]
    assert len(configs) == len(set(configs)) == 16
    told = {
        json.dumps(entry["parameters"]): entry["fitness"] for entry in journal(resumed, "tell") if entry["fitness"] is not None
    }
    assert told == {json.dumps(record["config"]): record["tflops"] for record in after}


def as_a_browser_gets(manager, path):
    asked = urllib.request.Request(f"{manager.url}/api/v1/nni/{path}", headers={"Accept": "application/json, text/plain, */*"})
    with urllib.request.urlopen(asked, timeout=30) as answer:
        return json.load(answer)


def parameters_by_trial(jobs):
    return {job["trialJobId"]: json.loads(job["hyperParameters"][-1])["parameters"] for job in jobs if "hyperParameters" in job}


def flatten_as_shown(parameters):
    return {name.removesuffix("._name"): value for name, value in flatten(parameters).items()}


def test_a_nested_space_is_exhausted_through_a_stop_and_a_resume(experiment):
    width = {"_type": "discrete", "_value": [4, 8, 16, 32]}
    branches = [
        {"_name": "naive"},
        {"_name": "wide", "width": width},
        {"_name": "tiled", "X": {"_type": "factor", "_value": [8, 2]}},
    ]
    space = {"loop": {"_type": "choice", "_value": branches}}
    manager = experiment("python3 nested.py", space, code=TESTS / "trials", concurrency=2)
    wait_for(lambda: len(journal(manager, "tell")) >= 3)
    # NNI's page of trials stays blank once a branch has a parameter whose type is not NNI's: browsers see it beside all others.
    shown = parameters_by_trial(as_a_browser_gets(manager, "trial-jobs"))
    kept = parameters_by_trial(rest.request(f"{manager.url}/api/v1/nni/trial-jobs"))  # a later moment: there may be more
    assert len(shown) >= 3 and shown == {trial: flatten_as_shown(kept[trial]) for trial in shown}
    assert as_a_browser_gets(manager, "experiment")["params"]["searchSpace"] == {}
    assert rest.request(f"{manager.url}/api/v1/nni/experiment")["params"]["searchSpace"] == space
    manager.stop()
    resumed = experiment.resume(manager.experiment_id)
    assert ended(resumed) == "DONE"
    expected = [{"_name": "naive"}]
    expected += [{"_name": "wide", "width": value} for value in (4, 8, 16, 32)]
    expected += [{"_name": "tiled", "X": [a, 8 // a]} for a in (1, 2, 4, 8)]
    told = {json.dumps(entry["parameters"]["loop"], sort_keys=True): entry["fitness"] for entry in journal(resumed, "tell")}
    assert told == {json.dumps(each, sort_keys=True): float(len(each)) for each in expected}


def test_every_fault_is_survived_and_coded(experiment):
    faults = {
        "fine": 0,
        "raises": 1,
        "segfaults": 1,
        "does_not_compile": 2,
        "aborts_while_running": 4,
        "wrong_answer": 5,
        "reports_nan": 5,
        "hangs_while_building": 6,
        "hangs_while_running": 7,
        "kills_its_trial": 8,
    }
    space = {"fault": {"_type": "choice", "_value": list(faults)}}
    command = "python3 faulty.py --target cpu --build-timeout 10 --run-timeout 8"
    manager = experiment(command, space, code=TESTS / "trials", trials=50, concurrency=3)
    assert ended(manager) == "DONE"  # by itself: every configuration has been tried
    assert {record["config"]["fault"]: record["error_code"] for record in measured(manager)} == faults
    assert all(record["error_code"] == 0 or record["error"] for record in measured(manager))
    told = {entry["parameters"]["fault"]: entry["fitness"] for entry in journal(manager, "tell")}
    assert [fault for fault, fitness in told.items() if fitness is not None] == ["fine"]
    assert workers(manager) == []


def test_foreign_trials_and_their_metrics(experiment):
    kinds = ["good", "dict", "nan", "inf", "text", "says nothing", "dies"]
    space = {"kind": {"_type": "choice", "_value": kinds}, "i": {"_type": "randint", "_value": [0, 2]}}
    manager = experiment("python3 plain.py", space, tuner="RandomSearch", code=TESTS / "trials", concurrency=2)
    assert ended(manager) == "DONE"
    told = {(e["parameters"]["kind"], e["parameters"]["i"]): e["fitness"] for e in journal(manager, "tell")}
    expected = {(kind, i): 1.0 + i if kind in ("good", "dict") else None for kind in kinds for i in range(2)}
    assert told == expected
    recorded = {(r["config"]["kind"], r["config"]["i"]): r.get("tflops") for r in report.load(manager.folder)}
    assert recorded == expected


@pytest.mark.parametrize(
    "space, more, message",
    [
        ({"X": {"_type": "facto", "_value": [8, 2]}}, {}, "unknown _type 'facto'"),
        (SMALL_SPACE, {"parent_size": 8}, "OpEvo has no argument 'parent_size'"),
        (SMALL_SPACE, {"constraints": ["X[0] > 32"]}, "constraints: no configuration satisfies them"),
        (SMALL_SPACE, {"warm_start": "nowhere"}, "warm_start: no records at 'nowhere'"),
    ],
    ids=["space", "argument", "constraints", "warm start"],
)
def test_what_the_tuner_cannot_do_ends_the_experiment_as_error(experiment, space, more, message):
    manager = experiment("python3 plain.py", space, code=TESTS / "trials", **more)
    assert ended(manager) == "ERROR"
    assert message in journal(manager, "error")[0]["message"]
    assert message in (manager.folder / "log" / "dispatcher.log").read_text()
    assert measured(manager) == []


def test_an_exception_inside_the_search_ends_the_experiment_as_error(experiment):
    tuner = {"className": "broken_tuner.BrokenTuner", "codeDirectory": str(TESTS)}
    manager = experiment("python3 plain.py", SMALL_SPACE, tuner=tuner, code=TESTS / "trials", search="OpEvo")
    assert ended(manager) == "ERROR"
    assert "RuntimeError: the search is broken" in journal(manager, "error")[0]["message"]


def test_warm_start_of_a_new_experiment(experiment, tmp_path):
    space = {"i": {"_type": "randint", "_value": [0, 6]}, "kind": {"_type": "choice", "_value": ["good"]}}
    earlier = tmp_path / "earlier.jsonl"
    for i in range(4):
        records.append(earlier, {"config": {"i": i, "kind": "good"}, "error_code": 0, "tflops": 1.0 + i})
    manager = experiment("python3 plain.py", space, code=TESTS / "trials", concurrency=2, warm_start=str(earlier))
    assert ended(manager) == "DONE"
    assert sorted(entry["parameters"]["i"] for entry in journal(manager, "ask")) == [4, 5]


@pytest.mark.parametrize("searches", [list(SEARCHES)[start::3] for start in range(3)], ids=" ".join)
def test_every_search_exhausts_a_small_space_once_under_its_registered_name(experiment, searches):
    space = {"i": {"_type": "randint", "_value": [0, 4]}, "kind": {"_type": "choice", "_value": ["good", "dies"]}}
    more = {"AutoTVM": {"batch_size": 3}, "NoSE": {"population_size": 3}, "Genetic": {"population_size": 3}}

    def started(search):
        named = SEARCHES[search].nni_name
        return experiment("python3 plain.py", space, tuner=named, code=TESTS / "trials", **more.get(search, {}))

    with ThreadPoolExecutor() as pool:  # side by side: most of the time they wait for NNI's polling
        managers = list(pool.map(started, searches))
    for search, manager in zip(searches, managers):
        assert ended(manager) == "DONE"
        asked = [(entry["parameters"]["i"], entry["parameters"]["kind"]) for entry in journal(manager, "ask")]
        assert sorted(asked) == [(i, kind) for i in range(4) for kind in ("dies", "good")]
        if search == "AutoTVM":
            assert "cost model of" in (manager.folder / "log" / "dispatcher.log").read_text()
