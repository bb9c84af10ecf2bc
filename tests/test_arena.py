"""Replaying, comparing live, and the sensitivity study."""

import csv
import gzip
import json
import random
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from statistics import mean

import pytest
from conftest import TESTS

from nni_tensor_tuners import SearchSpace
from nni_tensor_tuners.arena import clock, compare, landscape, summary
from nni_tensor_tuners.arena.replay import replay
from nni_tensor_tuners.cli import main
from nni_tensor_tuners.cli.progress import Progress
from nni_tensor_tuners.frontends import local
from nni_tensor_tuners.study import records
from nni_tensor_tuners.tasks.device import find_device
from nni_tensor_tuners.tasks.matmul import Matmul

ROOT = Path(__file__).parents[1]
SHARED = ROOT.parent / "shared" / "landscapes"
OURS = ROOT / "benchmarks" / "landscapes"
TILES = {"_type": "factor", "_value": [24, 3]}


def write_landscape(folder, name="planted", failing=lambda tile, unroll: False):
    """A recording of 90 configurations; the best takes 1 ms."""
    params = {"tile": TILES, "unroll": [0, 16, 64], "fixed": [7]}
    manifest = folder / landscape.MANIFEST
    entries = json.loads(manifest.read_text()) if manifest.exists() else {}
    manifest.write_text(json.dumps({**entries, name: {"params": params}}))
    space = SearchSpace.from_json({"tile": TILES})
    with gzip.open(folder / f"{name}.csv.gz", "wt", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["tile", "unroll", "fixed", "time_ms", "std_ms", "status"])
        for (tile,) in space.points(random.Random(0)):
            for unroll in params["unroll"]:
                if failing(tile, unroll):
                    writer.writerow([json.dumps(tile), unroll, 7, "", "", "runtime_failed"])
                else:
                    writer.writerow([json.dumps(tile), unroll, 7, 1 + abs(tile[1] - 6) + abs(unroll - 16) / 16, 0.01, "ok"])
    return folder


def numbers_of(line):
    return [float(number) for number in re.findall(r"(?<![\w@])\d+\.\d+", line)]


def test_a_recording_is_a_space_of_its_own(tmp_path):
    write_landscape(tmp_path, failing=lambda tile, unroll: tile[2] == 24)
    (recording,) = landscape.load(tmp_path)
    assert recording.name == "planted" and recording.optimum == 1.0
    assert recording.space.names == ["tile", "unroll"]  # what has one value is nothing to search
    assert len(recording.fitness) == 90 and sum(fitness is None for fitness in recording.fitness.values()) == 3
    assert recording.fitness[(2, 6, 2), 16] == 1.0 and recording.fitness[(1, 1, 24), 16] is None
    assert sorted(recording.space.points(random.Random(0))) == sorted(recording.fitness)
    assert not recording.space.contains({"tile": [2, 6, 2], "unroll": 32})
    assert landscape.load(tmp_path / "planted.csv.gz")[0].fitness == recording.fitness


@pytest.mark.parametrize("zipped", [False, True])
def test_kernel_tuner_cache_files_are_read_as_they_are(tmp_path, zipped):
    entries = [("8,a", 8, "a", 2.0), ("16,a", 16, "a", 0.5), ("8,b", 8, "b", "InvalidConfig"), ("16,b", 16, "b", 1e20)]
    cache = {
        "device_name": "GPU",
        "kernel_name": "k",
        "tune_params_keys": ["block", "method"],
        "tune_params": {"block": [8, 16, 32], "method": ["a", "b"]},
        "objective": "time",
        "cache": {key: {"block": block, "method": method, "time": time} for key, block, method, time in entries},
    }
    path = tmp_path / ("A100.json.gz" if zipped else "A100.json")
    text = json.dumps(cache).encode()
    path.write_bytes(gzip.compress(text) if zipped else text)
    (recording,) = landscape.load(path)
    assert recording.name == "A100" and recording.optimum == 2.0
    assert recording.fitness == {(8, 0): 0.5, (16, 0): 2.0, (8, 1): None, (16, 1): None}


def test_older_caches_have_the_parameters_in_the_key_only(tmp_path):
    cache = {"16,0.5": {"time": 2.0}, "8,0.5": {"time": "CompilationFailedConfig"}}
    content = {"tune_params_keys": ["a", "b"], "tune_params": {"a": [8, 16], "b": [0.5, 1]}, "cache": cache}
    (tmp_path / "old.json").write_text(json.dumps(content))
    assert landscape.load(tmp_path / "old.json")[0].fitness == {(16, 0.5): 0.5, (8, 0.5): None}


def test_landscapes_of_one_name_are_told_apart(tmp_path, capsys):
    for folder in ("gemm", "pnpoly"):
        (tmp_path / folder).mkdir()
        content = {"tune_params_keys": ["a"], "tune_params": {"a": [1, 2]}, "cache": {"1": {"time": 1.0}, "2": {"time": 2.0}}}
        (tmp_path / folder / "A100.json").write_text(json.dumps(content))
    paths = [str(tmp_path / folder / "A100.json") for folder in ("gemm", "pnpoly", "gemm")]
    assert main(["replay", *paths, "--seeds", "2", "--trials", "2", "--searches", "Random", "--output", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "gemm/A100\n" in printed and "pnpoly/A100\n" in printed and "mean of 2 landscapes" in printed
    assert "interrupted" not in printed


def test_t4_results_files(tmp_path):
    def result(block, time, invalidity="correct"):
        measurements = [{"name": "energy", "value": 3.0}, {"name": "time", "value": time, "unit": "ms"}]
        return {"configuration": {"block": block}, "invalidity": invalidity, "measurements": measurements}

    results = [result(8, 4.0), result(16, 1.0), result(32, 0.1, "runtime")]
    (tmp_path / "W6600_T4.json").write_text(json.dumps({"results": results}))
    (recording,) = landscape.load(tmp_path / "W6600_T4.json")
    assert recording.fitness == {(8,): 0.25, (16,): 1.0, (32,): None}


def test_an_experiment_s_records_are_a_landscape(tmp_path):
    configs = [{"X": [1, 1, x, 32 // x], "Y": [1, 1, 1, 32], "K": [32, 1, 1]} for x in (1, 2, 4)]
    place = {"workload": Matmul(32, 32, 32).to_dict(), "device": {"kind": "cpu", "name": "here"}}
    for config, tflops in [(configs[0], 1.0), (configs[1], 2.0), (configs[1], 4.0), (configs[1], 9.0)]:
        records.append(tmp_path / records.RECORDS, {"config": config, "error_code": 0, "tflops": tflops, **place})
    records.append(tmp_path / records.RECORDS, {"config": configs[2], "error_code": 5, **place})
    (recording,) = landscape.load(tmp_path)
    assert recording.name == tmp_path.name
    assert sorted(recording.fitness.values(), key=str) == [1.0, 4.0, None]  # the median of what was measured thrice


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("a.json", "{}", "neither a Kernel Tuner cache nor T4 results"),
        ("a.json", "{", "Expecting property name"),
        ("a.json.gz", "{}", "Not a gzipped file"),
        ("a.json.gz", b"\x1f\x8b\x08" + bytes(30), "cannot be read"),
        ("a.json", '{"cache": {}}', "not the expected layout (KeyError: 'tune_params_keys')"),
        ("MANIFEST.json", '{"a": {"params": {"x": [1, 2]}}}', "there is no a.csv.gz"),
        ("records.jsonl", '{"config": {}}', "expected records of one workload on one kind of device, found 0"),
        ("a.txt", "", "expected a folder with a MANIFEST.json, a CSV, a Kernel Tuner cache or an experiment's records"),
    ],
)
def test_what_cannot_be_read_is_named_in_one_line(tmp_path, capsys, name, content, message):
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    source = tmp_path if name in ("MANIFEST.json", "records.jsonl") else tmp_path / name
    source = source if name != "a.txt" else tmp_path
    assert main(["replay", str(source), "--output", str(tmp_path / "out")]) == 1
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1 and str(tmp_path) in error


def test_failed_trials_count_as_trials(tmp_path):
    write_landscape(tmp_path, failing=lambda tile, unroll: unroll == 0)
    (recording,) = landscape.load(tmp_path)
    run = replay(recording, "Random", {}, 0, 1000)
    assert (len(run["best"]), run["failed"]) == (90, 30)  # until the space is exhausted
    assert run["best"] == sorted(run["best"]) and run["best"][-1] == 1.0
    assert replay(recording, "OpEvo", {}, 3, 40)["best"] == replay(recording, "OpEvo", {}, 3, 40)["best"]


def test_a_search_is_named_with_its_arguments():
    assert summary.parse_search("NA2C:lr=1e-3:n_states=4") == ("NA2C", {"lr": 1e-3, "n_states": 4})
    assert summary.parse_search("AutoTVM:objective=regression") == ("AutoTVM", {"objective": "regression"})


def test_replay_prints_a_table_and_writes_csv_and_figure(tmp_path, capsys):
    write_landscape(tmp_path, "one")
    write_landscape(tmp_path, "two", failing=lambda tile, unroll: tile[0] == 1)
    searches = ["OpEvo", "OpEvo:parents_size=2:mutate_rate=0.3", "Random"]
    options = ["--seeds", "6", "--trials", "40", "--at", "10", "40", "--output", str(tmp_path / "out")]
    assert main(["replay", str(tmp_path), *options, "--searches", *searches]) == 0
    printed = capsys.readouterr().out
    blocks = {block.splitlines()[0]: block.splitlines()[1:] for block in printed.split("\n\n")}
    last = next(
        block for title, block in blocks.items() if "mean of 2 landscapes, 6 seeds, 40 trials" in "\n".join([title, *block])
    )
    with open(tmp_path / "out" / "runs.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 3 * 6
    for search in searches:
        own = [row for row in rows if row["search"] == search]
        line = numbers_of(next(line for line in last if line.startswith(search + " "))[len(search) :])
        assert line[0] == pytest.approx(mean(float(row["best_10"]) for row in own), abs=6e-4)
        assert line[1] == pytest.approx(mean(float(row["best_40"]) for row in own), abs=6e-4)
        assert line[2] == pytest.approx(mean(float(row["best_40"]) >= 0.999 for row in own), abs=6e-3)
        assert line[3] == pytest.approx(mean(int(row["failed"]) for row in own), abs=0.06)
    assert (tmp_path / "out" / "convergence.png").read_bytes().startswith(b"\x89PNG")


def test_the_number_of_jobs_changes_nothing(tmp_path):
    write_landscape(tmp_path)
    curves = []
    for jobs in ("1", "2"):
        out = tmp_path / jobs
        assert main(["replay", str(tmp_path), "--seeds", "3", "--trials", "30", "--jobs", jobs, "--output", str(out)]) == 0
        with open(out / "runs.csv", encoding="utf-8") as file:
            rows = csv.DictReader(file)
            curves.append([{k: v for k, v in row.items() if k not in ("seconds", "longest")} for row in rows])
    assert curves[0] == curves[1] and len(curves[0]) == 8 * 3


def test_ctrl_c_keeps_the_runs_that_have_ended(tmp_path):
    write_landscape(tmp_path)
    command = [sys.executable, "-m", "nni_tensor_tuners", "replay", str(tmp_path), "--seeds", "5000", "--output", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdout.readline()  # the first run has ended
        process.send_signal(signal.SIGINT)
        printed, errors = process.communicate(timeout=60)
    assert process.returncode == 0 and errors == ""
    ended = int(re.search(r"interrupted: (\d+) of 40000 runs had ended", printed).group(1))
    with open(tmp_path / "runs.csv", encoding="utf-8") as file:
        assert len(list(csv.DictReader(file))) == ended >= 1


def test_sensitivity_on_a_landscape(tmp_path, capsys):
    write_landscape(tmp_path)
    options = ["--q", "0.2", "0.5", "--parents", "2", "8", "--seeds", "2", "--trials", "30", "--output", str(tmp_path / "out")]
    assert main(["sensitivity", str(tmp_path), *options]) == 0
    printed = capsys.readouterr().out
    assert all(f"\n{label} " in printed for label in ("q=0.2", "q=0.5, lambda=8", "lambda=2"))
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"runs.csv", "mutate_rate.png", "parents_size.png"}


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["replay", "nowhere"], "landscape nowhere: expected a folder"),
        (
            ["replay", "x.json", "--searches", "OpEvoo"],
            "search 'OpEvoo': unknown search 'OpEvoo'; allowed: WalkGP, OpEvo, GBFS",
        ),
        (["replay", "x.json", "--searches", "OpEvo:q"], "search 'OpEvo:q': expected NAME:argument=value, got 'q'"),
        (["replay", "x.json", "--searches", "OpEvo:parent_size=3"], "did you mean 'parents_size'"),
        (["replay", "x.json", "--searches", "OpEvo:parents_size=["], "parents_size must be an integer >= 1, got '['"),
        (["replay", "x.json", "--trials", "100", "--at", "200"], "--at: expected at most the 100 trials of a run, got 200"),
        (["compare", "mm1", "--nni", "--retime", "3"], "--retime: not with --nni"),
        (["compare", "mm1", "--nni", "--transfer", "elsewhere"], "--transfer: not with --nni"),
        (["compare", "mm1", "--searches", "OpEvo", "--baseline", "Random"], "--baseline: expected one of OpEvo, got 'Random'"),
        (["compare", "mm9"], "unknown operator or workload 'mm9'"),
        (["compare", "mm1", "--constraint", "Z > 1"], "constraint 'Z > 1': 'Z' is no parameter; parameters: X, Y, K"),
        (["compare", "mm1", "--constraint", "X[0] > 512"], "constraints: no configuration satisfies them"),
        (["sensitivity", "x.json", "--q", "1.5"], "search 'q=1.5': mutate_rate must be a number between 0 and 1"),
    ],
)
def test_bad_arguments_are_one_line(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 1
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


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
        assert [float(rows[search][f"best_{n}"]) for n in (1, 2, 3)] == pytest.approx([1e3 / each for each in estimates], rel=1e-4)
    assert "best runs/s, mean" in capsys.readouterr().out
    for option in (["--nni"], ["--retime", "2"], ["--transfer", str(tmp_path)]):
        assert main([*command, *option]) == 1
        assert capsys.readouterr().err == f"error: {option[0]}: not for a model\n"


def test_a_program_is_timed_again_without_numpy(tmp_path, capsys):
    command = ["compare", "softmax(n=24, m=32)", "--searches", "Random", "--seeds", "1", "--trials", "2", "--retime", "1"]
    assert main([*command, "--target", "cpu", "--output", str(tmp_path)]) == 0
    assert "the same, timed again in turns, median of 1\n" in capsys.readouterr().out
    assert (tmp_path / "retimed.csv").stat().st_size > 0


def test_record_measures_every_configuration_once_and_goes_on(tmp_path, capsys):
    restricted = [word for text in ("K[0] == 32", "X[1] == 1", "Y[1] == 1", "Y[0] == 1") for word in ("--constraint", text)]
    command = ["record", *SMALL, *restricted, "--output", str(tmp_path)]
    assert main([*command, "--all", "--compilers", "2"]) == 0
    task, device, file = Matmul(32, 32, 32), find_device("cpu"), tmp_path / records.RECORDS
    space = SearchSpace.from_json(task.search_space(device), [*task.constraints(device), *restricted[1::2]])
    legal = sorted(json.dumps(space.config(point), sort_keys=True) for point in space.points(random.Random(0)))
    found = records.read(file)
    assert sorted(json.dumps(record["config"], sort_keys=True) for record in found) == legal and len(legal) > 3
    manifest = json.loads((tmp_path / landscape.MANIFEST).read_text())
    (name,) = manifest
    assert manifest[name]["complete"] and manifest[name]["status"] == {"ok": len(legal)}
    (recording,) = landscape.load(tmp_path)
    best = min(record["latency_ms"] for record in found)
    assert len(recording.fitness) == len(legal) and recording.optimum == pytest.approx(1 / best, rel=1e-5)

    kept = file.read_text().splitlines()[:2]
    file.write_text("\n".join(kept) + "\n")  # as if it had been killed
    assert main([*command, "--random", "3"]) == 0
    assert file.read_text().splitlines()[:2] == kept and len(records.read(file)) == 3
    assert not json.loads((tmp_path / landscape.MANIFEST).read_text())[name]["complete"]
    capsys.readouterr()
    assert main([*command, "--layout", "NT", "--all"]) == 1
    assert "it holds the records of something else; name another folder" in capsys.readouterr().err


def test_a_recording_has_failures_and_what_they_cost(tmp_path):
    task, device = Matmul(2, 2, 2), find_device("cpu")
    space = SearchSpace.from_json(task.search_space(device))
    configs = [space.config(point) for point in space.points(random.Random(0))][:3]
    ends = [{"error_code": 0, "tflops": 1.0, "latency_ms": 2.0, "spread": 0.1}, {"error_code": 6}, {"error_code": 4}]
    found = [{"config": config, "trial_seconds": 1.5, **end} for config, end in zip(configs, ends)]
    landscape.write(found, task, device, [], False, "mine", tmp_path)
    (recording,) = landscape.load(tmp_path)
    fitness = [recording.fitness[recording.space.point(each)] for each in map(live(recording), configs)]
    assert fitness == [0.5, None, None]
    with gzip.open(tmp_path / "mine.csv.gz", "rt", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["status"] for row in rows] == ["ok", "compile_failed", "runtime_failed"]
    assert all(float(row["seconds"]) == 1.5 for row in rows)
    assert float(rows[0]["std_ms"]) == pytest.approx(0.1 * 2 / 1.349, rel=1e-2)
    assert json.loads((tmp_path / landscape.MANIFEST).read_text())["mine"]["seconds"] == 4.5


def live(recording):
    """Configuration -> what the recording's space has of it."""
    return lambda config: {name: config[name] for name in recording.space.names}


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


def test_the_project_s_own_landscape(tmp_path, capsys):
    (recording,) = landscape.load(next(OURS.glob("*.jsonl.gz")))
    assert len(recording.fitness) > 300
    assert main(["replay", str(next(OURS.glob("*.jsonl.gz"))), "--searches", "OpEvo", "Random", "--output", str(tmp_path)]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith(("OpEvo", "Random"))]
    assert numbers_of(lines[0])[1] > numbers_of(lines[1])[1]


@pytest.mark.skipif(
    not SHARED.is_dir(), reason="the public recordings (../shared/landscapes) are not on this machine; not ours to ship"
)
def test_on_the_shared_landscapes_every_search_beats_random(tmp_path, capsys):
    sources = [str(SHARED / f"{name}.csv.gz") for name in ("gemm4096__P100", "convolution_milo__A4000", "pnpoly__RTX_2080_Ti")]
    assert main(["replay", *sources, "--seeds", "4", "--output", str(tmp_path)]) == 0
    last = capsys.readouterr().out.split("mean of 3 landscapes")[1].splitlines()
    at_200 = {line.split()[0]: numbers_of(line)[3] for line in last[2:10]}
    assert len(at_200) == 8 and all(value > at_200["Random"] for name, value in at_200.items() if name != "Random")
