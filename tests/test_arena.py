"""Recorded spaces: reading them, replaying searches on them, recording new ones, and the sensitivity study."""

import csv
import gzip
import json
import random
import re
import signal
import subprocess
import sys
from pathlib import Path
from statistics import mean

import pytest

from nni_tensor_tuners import SearchSpace
from nni_tensor_tuners.arena import landscape, summary
from nni_tensor_tuners.arena.replay import replay
from nni_tensor_tuners.cli import main
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
