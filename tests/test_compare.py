"""Searches compared live: in turns, by the wall-clock, inside a model's tasks, through NNI."""

import csv
import re
import threading
from statistics import mean

import pytest
from conftest import TESTS

from nni_tensor_tuners.arena import clock, compare
from nni_tensor_tuners.cli import main
from nni_tensor_tuners.cli.progress import Progress
from nni_tensor_tuners.frontends import local
from nni_tensor_tuners.study import records
from nni_tensor_tuners.tasks.device import find_device
from nni_tensor_tuners.tasks.matmul import Matmul

SMALL = ["matmul", "--n", "32", "--k", "32", "--m", "32", "--target", "cpu"]


def test_compare_measures_in_turns_and_goes_on_where_it_was_interrupted(tmp_path, capsys):
    command = ["compare", *SMALL, "--searches", "OpEvo", "Random", "--seeds", "2", "--trials", "3", "--output", str(tmp_path)]
    assert main(command) == 0
    first, file = capsys.readouterr().out, tmp_path / records.RECORDS
    found = records.read(file)
    assert [record["trial"] for record in found] == [1] * 4 + [2] * 4 + [3] * 4
    assert {(record["search"], record["seed"]) for record in found} == {(s, i) for s in ("OpEvo", "Random") for i in (0, 1)}
    assert all(record["error_code"] == 0 and record["trial_seconds"] > 0 for record in found)
    best = mean(max(r["tflops"] for r in found if (r["search"], r["seed"]) == ("Random", i)) for i in (0, 1))
    assert f"{best:.4f} ±" in next(line for line in first.splitlines() if line.startswith("Random"))
    for name in ("runs.csv", "trials.png", "clock-trials.png", "time-trials.png"):
        assert (tmp_path / name).stat().st_size > 0

    assert main([*command, "--at", "1", "3", "--retime", "2"]) == 0  # everything is recorded: nothing else is measured
    second = capsys.readouterr().out
    assert records.read(file) == found and "timed again in turns, median of 2; NumPy: 0." in second
    with open(tmp_path / "retimed.csv", encoding="utf-8") as written:
        rows = list(csv.DictReader(written))
    again = {(row["search"], row["seed"]): (float(row["best_1"]), float(row["best_3"])) for row in rows}
    assert set(again) == {(s, i) for s in ("OpEvo", "Random") for i in "01"} and min(map(min, again.values())) > 0
    timed_again = second[second.index("timed again") :]
    assert f"{mean(again['Random', i][1] for i in '01'):.4f} ±" in next(
        line for line in timed_again.splitlines() if line.startswith("Random")
    )

    kept = file.read_text().splitlines()[:7]
    file.write_text("\n".join(kept) + "\n")  # as if it had been killed after the seventh trial
    assert main(command) == 0
    again = records.read(file)
    assert file.read_text().splitlines()[:7] == kept
    key = ("search", "seed", "trial")
    assert [[record[k] for k in key] for record in again] == [[record[k] for k in key] for record in found]

    assert main(["replay", str(tmp_path), "--seeds", "2", "--trials", "5", "--output", str(tmp_path / "replay")]) == 0
    capsys.readouterr()
    assert main([*command, "--layout", "NT"]) == 1  # the same space, another kernel
    assert "holds the records of another comparison" in capsys.readouterr().err
    lines = file.read_text().splitlines()
    file.write_text("\n".join(lines[4:]) + "\n")  # the first trials are missing: not what these searches propose
    capsys.readouterr()
    assert main(command) == 1
    assert "holds the records of another comparison" in capsys.readouterr().err


def test_compare_has_trials_built_side_by_side(tmp_path, monkeypatch, capsys):
    """Three at a time, of three runs: none goes on before the others have begun."""
    together = threading.Barrier(3)

    def measured(*args, **kwargs):
        together.wait(timeout=30)
        return measure(*args, **kwargs)

    measure = local.measure
    monkeypatch.setattr(local, "measure", measured)
    command = ["compare", *SMALL, "--searches", "Random", "--seeds", "3", "--trials", "4", "--output", str(tmp_path)]
    assert main([*command, "--compilers", "3"]) == 0
    found = records.read(tmp_path / records.RECORDS)
    assert sorted((record["seed"], record["trial"]) for record in found) == [(i, n) for i in range(3) for n in range(1, 5)]
    assert not together.broken
    waiting = re.search(r"^Random(?: +[\d.]+%){3} +([\d.]+)%", capsys.readouterr().out, re.MULTILINE)
    assert float(waiting[1]) == 0


def test_collect_measures_and_describes_several_workloads_and_goes_on(tmp_path, capsys):
    shape = ["--n", "16", "--k", "16", "--m", "16", "--target", "cpu"]
    command = ["collect", "mm1", "mm2", *shape, "--trials", "2", "--features", "relation", "store", "--output", str(tmp_path)]
    assert main(command) == 0
    printed, file = capsys.readouterr().out, tmp_path / records.RECORDS
    found = records.read(file)
    assert [record["name"] for record in found] == [f"mm{i}-n16-k16-m16" for i in (1, 2, 2, 1)]
    assert all(len(record["features"]["relation"]) == 176 and len(record["features"]["store"]) == 328 for record in found)
    assert "mm2-n16-k16-m16: 2 trials, 0 failed, best" in printed
    file.write_text("".join(line + "\n" for line in file.read_text().splitlines()[:3]))  # as if it had been killed
    assert main(command) == 0
    again = records.read(file)
    assert again[:3] == found[:3] and again[3]["config"] == found[3]["config"] and len(again) == 4


def test_searches_that_can_learn_from_what_was_collected_run_a_second_time_with_it(tmp_path, capsys):
    features = ["--features", "relation", "--target", "cpu"]
    collected = ["collect", "mm1", "--n", "16", "--k", "16", "--m", "16", *features, "--minutes", "0.05"]
    assert main([*collected, "--output", str(tmp_path / "source")]) == 0
    assert len(records.read(tmp_path / "source" / records.RECORDS)) >= 1
    model = "AutoTVM:features=relation:batch_size=2"
    command = ["compare", *SMALL, "--searches", model, "Random", "--seeds", "1", "--trials", "2"]
    assert main([*command, "--transfer", str(tmp_path / "source"), "--output", str(tmp_path / "made")]) == 0
    found = records.read(tmp_path / "made" / records.RECORDS)
    assert {record["search"] for record in found} == {model, "Random", f"{model}, transfer"}
    assert f"{model}, transfer" in capsys.readouterr().out
    assert main([*command, "--transfer", str(tmp_path), "--output", str(tmp_path / "made")]) == 1
    assert capsys.readouterr().err.startswith(f"error: experiment: no records of '{tmp_path}' found")


def test_searches_are_compared_inside_a_model_s_tasks(tmp_path, capsys):
    """By the runs a second that are estimated by the best kernels known, default schedules included."""
    command = ["compare", f"{TESTS / 'my_models.py'}:transposed", "--target", "cpu", "--output", str(tmp_path)]
    searches = ["OpEvo:parents_size=2", "TaskScheduler:selection=gradient:inner=Random"]
    assert main([*command, "--searches", *searches, "--seeds", "1", "--trials", "3"]) == 0
    found = records.read(tmp_path / records.RECORDS)
    assert [record["search"] for record in found] == [*searches, *reversed(searches), *searches]
    with open(tmp_path / "runs.csv", encoding="utf-8") as file:
        rows = {row["search"]: row for row in csv.DictReader(file)}
    for search in searches:
        estimates = [record["estimate_ms"] for record in found if record["search"] == search]
        assert [float(rows[search][f"best_{n}"]) for n in (1, 2, 3)] == pytest.approx(
            [1e3 / each for each in estimates], rel=1e-4
        )
    assert "best runs/s, mean" in capsys.readouterr().out
    for option in (["--nni"], ["--retime", "2"], ["--transfer", str(tmp_path)]):
        assert main([*command, *option]) == 1
        assert capsys.readouterr().err == f"error: {option[0]}: not for a model\n"


def test_a_program_is_timed_again_without_numpy(tmp_path, capsys):
    command = ["compare", "softmax(n=24, m=32)", "--searches", "Random", "--seeds", "1", "--trials", "2", "--retime", "1"]
    assert main([*command, "--target", "cpu", "--output", str(tmp_path)]) == 0
    assert "the same, timed again in turns, median of 1\n" in capsys.readouterr().out
    assert (tmp_path / "retimed.csv").stat().st_size > 0


def test_a_live_run_survives_failures_and_ends_with_the_space(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "nni_tensor_tuners.frontends.local.measure", lambda *args, **more: {"error_code": 4, "error": "it fell over"}
    )
    device = find_device("cpu")
    runs = compare.compare(Matmul(2, 2, 2), device, ["K[0] == 2"], {"r": ("Random", {})}, 1, 10_000, tmp_path, Progress())
    space = len(records.read(tmp_path / records.RECORDS))
    assert len(runs[0]["best"]) == runs[0]["failed"] == space < 100 and set(runs[0]["best"]) == {0.0}


def test_a_run_s_minutes_are_its_own(tmp_path, capsys):
    command = ["compare", *SMALL, "--searches", "OpEvo", "Random", "--seeds", "1", "--minutes", "0.05", "--baseline", "Random"]
    assert main([*command, "--output", str(tmp_path)]) == 0
    for search in ("OpEvo", "Random"):
        own = [record for record in records.read(tmp_path / records.RECORDS) if record["search"] == search]
        stages = [record["stage_seconds"] for record in own]
        waited = [each.get("start", 0.0) + each.get("wait", 0.0) for each in stages]
        seconds = [each["search_seconds"] + each["trial_seconds"] - idle for each, idle in zip(own, waited)]
        assert sum(seconds[:-1]) < 3 <= sum(seconds)
        assert all(sum(each["stage_seconds"].values()) <= each["trial_seconds"] for each in own)
    printed = capsys.readouterr().out
    assert "0.05 minutes" in printed and "over Random" in printed and "no error" in printed


RUNS = [  # (search, seed, [(seconds of searching, stages, error code, TFLOPS), ...])
    ("a", 0, [(1, {"compile": 2, "run": 1}, 0, 2.0), (1, {"compile": 6, "wait": 1}, 6, None), (0, {"run": 3}, 0, 4.0)]),
    ("a", 1, [(2, {"start": 1, "run": 2}, 0, 1.0), (0, {"run": 5}, 0, 3.0)]),
    ("b", 0, [(0, {"run": 4}, 0, 1.0), (0, {"run": 16}, 0, 2.0)]),
]


def runs_of(described):
    runs = []
    for search, seed, trials in described:
        runs.append(clock.new_run(search=search, seed=seed))
        now = 0.0
        for searching, stages, code, tflops in trials:
            now += searching + sum(stages.values())
            record = {"error_code": code, "stage_seconds": stages, **({"tflops": tflops} if code == 0 else {})}
            clock.add_search(runs[-1], searching)
            clock.add_trial(runs[-1], record, now, sum(stages.values()))
    return runs


def test_the_best_at_a_time_is_that_of_trials_which_had_ended():
    runs = runs_of(RUNS)
    assert [run["clock"] for run in runs] == [[4, 12, 15], [5, 10], [4, 20]] and clock.reached(runs) == 10
    best = [run["best"] for run in clock.at_times(runs, [3, 4, 9, 10, 15])]
    assert best == [[0, 2, 2, 2, 4], [0, 0, 1, 3, 3], [0, 1, 1, 1, 1]]
    assert clock.grid(10, 4) == [2.5, 5, 7.5, 10]
    lines = clock.table(runs, [5, 10], baseline="b").splitlines()
    # Of 2 and 1, and of 2 and 3: the sample's standard deviation, .707, over the root of two.
    assert lines[1].split() == ["a", "1.5000", "±", "0.5000", "2.5000", "±", "0.5000"]
    assert [line.split() for line in lines[4:]] == [["over", "b", "5", "s", "10", "s"], ["a", "1.500", "2.500"]]


def test_where_the_time_went_and_how_trials_ended():
    lines = [line.split() for line in clock.shares(runs_of(RUNS)).splitlines()]
    # Of a's 25 seconds: 4 searching, 8 compiling, 11 timing, 2 waiting.
    assert lines[1] == ["a", "16.0%", "32.0%", "44.0%", "8.0%", "0.0%"]
    assert lines[2] == ["b", "0.0%", "0.0%", "100.0%", "0.0%", "0.0%"]
    # Four of a's trials took 14 seconds, the one that was not built in time 7.
    assert lines[5:] == [
        ["a", "no", "error", "4", "80.0%", "66.7%"],
        ["a", "build", "timeout", "1", "20.0%", "33.3%"],
        ["b", "no", "error", "2", "100.0%", "100.0%"],
    ]


def test_compare_through_nni(tmp_path, capsys):
    command = [
        "compare",
        *SMALL,
        "--nni",
        "--constraint",
        "K[0] == 2",
        "--searches",
        "NA2C:n_states=2",
        "Random",
        "--seeds",
        "1",
        "--trials",
        "4",
        "--minutes",
        "9",
    ]
    assert main([*command, "--output", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert printed.count("web UI: http://127.0.0.1") == 2
    with open(tmp_path / "runs.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["search"] for row in rows] == ["NA2C:n_states=2", "Random"]
    assert all(float(row["best_4"]) > 0 and float(row["seconds"]) > 0 for row in rows)
    written = (tmp_path / "nni" / "NA2C-n-states-2-0" / "na2c.yml").read_text()
    assert "K[0] == 2" in written and "n_states: 2" in written and "maxTrialNumber: 4" in written
    assert "maxExperimentDuration: 540s" in written
