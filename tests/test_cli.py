"""The command line, as its users meet it."""

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from math import comb
from pathlib import Path

import psutil
import pytest
import yaml
from conftest import wait_for

from nni_tensor_tuners import SearchSpace, report
from nni_tensor_tuners.cli import main
from nni_tensor_tuners.frontends.nni.tune import _with_overrides
from nni_tensor_tuners.study import records
from nni_tensor_tuners.tasks import WORKLOADS

ROOT = Path(__file__).parents[1]
RECORDS = next((ROOT / "benchmarks" / "landscapes").glob("*.jsonl.gz"))
EXPERIMENT = {
    "searchSpace": {name: {"_type": "factor", "_value": [32, parts]} for name, parts in (("X", 4), ("Y", 4), ("K", 3))},
    "trialCommand": "python3 matmul.py --n 32 --k 32 --m 32 --target cpu",
    "trialCodeDirectory": str(ROOT / "trials"),
    "trialConcurrency": 3,
    "maxTrialNumber": 6,
    "tuner": {"name": "OpEvo", "classArgs": {"constraints": {"cpu": ["Y[3] >= 8"]}}},
    "trainingService": {"platform": "local"},
}


def write(folder, **changes):
    path = folder / "experiment.yml"
    path.write_text(yaml.safe_dump({key: value for key, value in {**EXPERIMENT, **changes}.items() if value is not None}))
    return str(path)


def with_parameter(spec):
    return {"searchSpace": {**EXPERIMENT["searchSpace"], "X": spec}}


def with_tuner(**class_args):
    return {"tuner": {"name": "OpEvo", "classArgs": class_args}}


@pytest.mark.parametrize(
    "changes, message",
    [
        (with_parameter({"_type": "facto", "_value": [32, 4]}), "parameter 'X'"),
        (
            {**with_parameter({"_type": "factor", "_value": [0, 4]}), "trialCommand": "true"},
            "'X': a factor's product must be an integer >= 1, got 0",
        ),
        ({**with_parameter({"_type": "factor", "_value": [32, 0]}), "trialCommand": "true"}, "'X': a factor's number of parts"),
        ({**with_parameter({"_type": "choice", "_value": []}), "trialCommand": "true"}, "'X': a choice needs a non-empty list"),
        (
            {**with_parameter({"_type": "discrete", "_value": [1, 1]}), "trialCommand": "true"},
            "'X': duplicate values in [1, 1]",
        ),
        (with_parameter({"_type": "factor", "_value": [64, 4]}), "parameter 'X': the trial's template has"),
        (with_tuner(parent_size=8), "OpEvo has no argument 'parent_size'; did you mean 'parents_size'?"),
        (with_tuner(warm_start="nowhere"), "warm_start: no records at 'nowhere'"),
        (with_tuner(transfer=["nowhere"]), "transfer: no records at 'nowhere'"),
        (with_tuner(transfer=str(RECORDS)), "OpEvo takes no transfer"),
        ({"tuner": {"name": "AutoTVM", "classArgs": {"features": "loop"}}}, "features: loop are of programs, and it is not known"),
        (with_tuner(space=1), "OpEvo has no argument 'space'"),
        (with_tuner(optimize_mode="max"), "optimize_mode must be one of maximize, minimize"),
        (with_tuner(constraints=["X[9] < 2"]), "constraint 'X[9] < 2': cannot be evaluated"),
        (with_tuner(constraints=["X[0] > 32"]), "no configuration satisfies the constraints"),
        ({"tuner": {"name": "Random"}}, "ours is RandomSearch"),
        (
            {"tuner": {"name": "TPE"}},
            "tuner name: expected one of WalkGP, OpEvo, GBFS, NA2C, AutoTVM, NoSE, Bansor, TaskScheduler, Genetic, RandomSearch, got 'TPE'",
        ),
        (
            {"tuner": {"className": "mine.Tuner"}},
            "tuner name: expected one of WalkGP, OpEvo, GBFS, NA2C, AutoTVM, NoSE, Bansor, TaskScheduler, Genetic, RandomSearch, got None",
        ),
        ({"tuner": "OpEvo"}, "tuner: expected a name and classArgs, got 'OpEvo'"),
        ({"tuner": {"name": "OpEvo", "classArgs": [1]}}, "classArgs: expected arguments by name, got [1]"),
        ({"trialCommand": 5}, "trialCommand: expected a command, got 5"),
        ({"trialCommand": "python3 'matmul.py"}, "trialCommand: No closing quotation"),
        ({"trialCodeDirectory": 5}, "trialCodeDirectory: expected a folder, got 5"),
        ({"searchSpace": [1]}, "searchSpace: expected parameters by name, got [1]"),
        ({"searchSpace": None, "searchSpaceFile": "/"}, "searchSpaceFile: cannot read / (Is a directory)"),
        ({"trialCommand": "python3 conv9d.py"}, "trialCommand: there is no conv9d.py"),
        ({"trialCommand": "python3 matmul.py mm9"}, "unknown operator or workload 'mm9'; allowed: mm1, mm2, mm3, matmul"),
        ({"trialCommand": "bash -c 'python3 matmul.py'"}, "trialCommand"),
        ({"trialConcurrency": 0}, "trialConcurrency: expected an integer >= 1, got 0"),
        ({"trialConcurency": 4}, "there is no field 'trialConcurency'; did you mean 'trialConcurrency'?"),
        ({"tuner": None}, "tuner: missing"),
        ({"searchSpace": None}, "searchSpaceFile: missing"),
        ({"searchSpace": None, "searchSpaceFile": "none.json"}, "searchSpaceFile: cannot read"),
        ({"trainingService": {"platform": "moon"}}, "NNI refuses it"),
    ],
)
@pytest.mark.parametrize("command", ["check", "tune"])
def test_a_bad_experiment_is_one_line_and_nothing_starts(tmp_path, monkeypatch, capsys, command, changes, message):
    monkeypatch.chdir(tmp_path)
    if command == "tune":
        monkeypatch.setattr("nni_tensor_tuners.frontends.nni.tune.Manager.create", lambda *_: pytest.fail("it was started"))
    assert main([command, write(tmp_path, **changes)]) == 1
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1, error


def test_cuda_without_a_gpu_does_not_start(tmp_path, capsys):
    if shutil.which("nvidia-smi"):
        pytest.skip("this machine has a GPU")
    assert main(["check", write(tmp_path, trialCommand="python3 matmul.py --n 32 --k 32 --m 32 --target cuda")]) == 1
    error = capsys.readouterr().err
    assert "target cuda: no usable NVIDIA GPU found" in error and error.count("\n") == 1


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["space", "conv9d"], "unknown operator or workload 'conv9d'; allowed: mm1, mm2, mm3, bmm1"),
        (["space", "matmul", "--n", "4"], "matmul: give --k and --m"),
        (["space", "matmul", "--b", "4"], "matmul: there is no --b; its shape: --n, --k, --m, --layout"),
        (["space", "conv1d", "--image", "5", "5"], "conv1d: give --batch and --in-channels and --out-channels and --kernel"),
        (["space", "resnet18-c2", "--image", "5"], "conv1d: kernel must be 1 integers, got (3, 3)"),
        (["space", "c2", "--groups", "5"], "conv2d: groups must divide in_channels, got 5 for 64"),
        (["report", "no-such-experiment"], "no records of 'no-such-experiment' found"),
        (["export", "no-such-experiment"], "no records of 'no-such-experiment' found"),
        (["check", "no-such-file.yml"], "cannot read no-such-file.yml"),
        (["tune"], "give an experiment file, or --resume"),
        (["tune", "--resume", "nope"], "nnictl resume: Id nope not exist!"),
        (["tune", "mm1", "--resume", "nope"], "give an experiment file, or --resume"),
    ],
)
def test_bad_arguments_are_one_line(arguments, message, capsys):
    assert main(arguments) == 1
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


@pytest.mark.parametrize(
    "arguments", [["--bogus"], ["space", "mm1", "--target", "tpu"], ["tune", "x.yml", "--trials", "0"], []]
)
def test_bad_usage_exits_with_2(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage: tensor-tuners" in capsys.readouterr().err


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_shipped_experiments_are_good_and_what_space_writes(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    shipped = ROOT / "experiments" / name
    written = tmp_path / name
    assert main(["space", name, "--output", str(written), "--trials", "trials"]) == 0
    paths = capsys.readouterr().out.split()
    assert sorted(Path(path).name for path in paths) == sorted(path.name for path in shipped.iterdir())
    for path in map(Path, paths):
        place = f"trialCodeDirectory: {os.path.relpath('trials', written)}"
        assert path.read_text().replace(place, "trialCodeDirectory: ../../trials") == (shipped / path.name).read_text()
    assert main(["check", *(str(path) for path in shipped.glob("*.yml"))]) == 0


def test_a_shape_of_one_s_own_is_what_its_trials_run(tmp_path, capsys):
    """The files name the shape as the trial script takes it; a named workload keeps its name, changed fields follow it."""
    shape = "--batch 1 --in-channels 4 --image 6 5 --out-channels 4 --kernel 3 --stride 2 --padding 1 --groups 2 --transposed"
    scripts = str(ROOT / "trials")
    for arguments, described in (
        (
            ["conv2d", *shape.split()],
            "conv.py conv2d --batch 1 --in-channels 4 --image 6 5 --out-channels 4 --kernel 3 3 --stride 2 2",
        ),
        (["c2", "--batch", "8"], "conv.py c2 --batch 8"),
        (["conv1d", *"--batch 1 --in-channels 1 --image 5 --out-channels 4 --kernel 9 --padding 4".split()], "--padding 4"),
        (["bmm1", "--b", "6", "--layout", "NT"], "batch_matmul.py bmm1 --layout NT --b 6"),
    ):
        folder = tmp_path / arguments[0]
        assert main(["space", *arguments, "--output", str(folder), "--trials", scripts]) == 0
        assert described in (folder / "opevo.yml").read_text()
        assert main(["check", str(folder / "opevo.yml")]) == 0
    assert "good" in capsys.readouterr().out


def test_analyse_counts_a_small_space_exactly(capsys):
    shape = ["--n", "6", "--k", "5", "--m", "4"]
    assert main(["space", "matmul", *shape, "--target", "cuda", "--analyse"]) == 0
    printed = capsys.readouterr().out
    assert main(["space", "matmul", *shape, "--target", "cuda"]) == 0
    described = json.loads(capsys.readouterr().out)
    space = SearchSpace.from_json(described["search_space"])
    legal = SearchSpace.from_json(described["search_space"], described["constraints"])
    total, count = space.size, sum(1 for _ in legal.points(random.Random(0)))
    assert total == comb(4, 1) ** 2 * comb(5, 2) * 3  # 6 = 2 * 3 in four parts, 4 = 2^2 in four, 5 in three
    assert f"matmul-n6-k5-m4 on cuda: {total:,} configurations (all counted)" in printed
    assert f"{count / total:8.3%}  all of these" in printed


def test_space_of_one_target(capsys):
    assert main(["space", "matmul", "--n", "6", "--k", "5", "--m", "4", "--layout", "NT", "--target", "cuda"]) == 0
    described = json.loads(capsys.readouterr().out)
    assert described["search_space"]["X"] == {"_type": "factor", "_value": [6, 4]}
    assert "24 <= X[2] * Y[2] <= 1024" in described["constraints"]


def test_a_reader_that_has_seen_enough_is_no_error():
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "nni_tensor_tuners", "space", "mm1", "--target", "cuda"]
    ran = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (ran.returncode, ran.stderr) == (141, "")


def start_tune(folder, *arguments):
    command = [sys.executable, "-m", "nni_tensor_tuners", "tune", *arguments]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def everything_of(folder):
    """Processes that name or stand in a folder."""
    found = []
    for process in psutil.process_iter():
        try:
            if str(folder) in " ".join(process.cmdline()) or process.cwd().startswith(str(folder)):
                found.append(process)
        except psutil.Error:
            continue
    return found


def records_below(folder):
    return [file for file in folder.glob(f"*/{records.RECORDS}") if file.parent.name != "_latest"]


def test_tune_to_the_end(tmp_path, capsys):
    path = write(tmp_path, experimentWorkingDirectory=str(tmp_path))
    with start_tune(tmp_path, path, "--trials", "3", "--output", "out") as process:
        printed, _ = process.communicate(timeout=300)
    assert process.returncode == 0, printed
    assert "3 trials (3 no_error)" in printed and "/3 trials, best" in printed and "http://127.0.0.1:" in printed
    assert "x NumPy's" in printed
    assert everything_of(tmp_path) == []

    out = tmp_path / "out"
    assert {file.name for file in out.iterdir()} == {"best.json", "kernel.so", "kernel.py", "run_kernel.py", "report.png"}
    best = json.loads((out / "best.json").read_text())
    (folder,) = [file.parent for file in records_below(tmp_path)]
    assert best["config"] in [record["config"] for record in records.read(folder / records.RECORDS)]
    assert best["retimed_tflops"] > 0 and best["numpy_tflops"] > 0
    assert "T.prim_func" in (out / "kernel.py").read_text()
    ran = subprocess.run([sys.executable, out / "run_kernel.py"], capture_output=True, text=True, check=False, cwd="/")
    assert ran.returncode == 0 and "largest difference from NumPy" in ran.stdout, ran.stderr

    assert main(["report", str(folder), "--top", "2", "--output", str(tmp_path / "again.png")]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].startswith("3 trials (3 no_error); best") and len(shown) == 1 + 3 + 1
    assert (tmp_path / "again.png").read_bytes().startswith(b"\x89PNG")


def test_ctrl_c_loses_nothing_and_resume_goes_on(tmp_path):
    path = write(tmp_path, experimentWorkingDirectory=str(tmp_path))
    with start_tune(tmp_path, path) as process:
        wait_for(lambda: process.poll() is not None or sum(len(records.read(file)) for file in records_below(tmp_path)) >= 2)
        process.send_signal(signal.SIGINT)
        printed, _ = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "nothing measured is lost" in printed
    assert everything_of(tmp_path) == []
    (folder,) = [file.parent for file in records_below(tmp_path)]
    before = records.read(folder / records.RECORDS)

    with start_tune(tmp_path, "--resume", folder.name) as process:
        printed, _ = process.communicate(timeout=300)
    assert process.returncode == 0, printed
    after = records.read(folder / records.RECORDS)
    configs = [json.dumps(record["config"]) for record in after]
    assert after[: len(before)] == before
    assert len(configs) == len(set(configs)) == 6


def test_ctrl_c_while_nnictl_starts_leaves_nothing_running(tmp_path):
    path = write(tmp_path, experimentWorkingDirectory=str(tmp_path))
    with start_tune(tmp_path, path) as process:
        wait_for(lambda: any("nnictl" in " ".join(command) and "create" in command for command in commands_below(process)))
        process.send_signal(signal.SIGINT)
        printed, _ = process.communicate(timeout=120)
    assert process.returncode == 130, printed
    assert everything_of(tmp_path) == []


def commands_below(process):
    found = []
    for child in psutil.Process(process.pid).children():
        with contextlib.suppress(psutil.Error):
            found.append(child.cmdline())
    return found


def test_a_script_that_only_mentions_us_is_not_run(tmp_path):
    (tmp_path / "mine.py").write_text("# not for nni_tensor_tuners\nopen('executed', 'w')\n")
    assert main(["check", write(tmp_path, trialCommand="python3 mine.py", trialCodeDirectory=None)]) == 0
    assert not (tmp_path / "executed").exists()


def test_a_copy_of_an_experiment_means_the_same(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "mine"
    folder.mkdir()
    content = yaml.safe_load(Path(write(folder, trialCodeDirectory=None)).read_text())
    copy = yaml.safe_load(_with_overrides(folder / "experiment.yml", content, 5, None).read_text())
    assert copy == {**content, "trialCodeDirectory": str(folder), "maxTrialNumber": 5}


def test_tune_says_why_when_every_trial_fails(tmp_path):
    path = write(tmp_path, experimentWorkingDirectory=str(tmp_path), trialCommand="false", maxTrialNumber=3)
    with start_tune(tmp_path, path) as process:
        printed, _ = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "3 trials (3 unknown_error); none succeeded" in printed
    assert "unknown_error: the trial died or was stopped without a result" in printed
    assert "error: export: no trial of ours succeeded" in printed
    assert everything_of(tmp_path) == []


def test_the_report_accounts_for_every_configuration_once(tmp_path):
    path = tmp_path / records.RECORDS
    config = [{"X": [i, 1]} for i in range(4)]
    records.append(path, {"config": config[0], "error_code": 8, "error": "late"})
    records.append(path, {"config": config[0], "error_code": 0, "tflops": 2.0})
    records.append(
        path, {"config": config[1], "error_code": 0, "tflops": 3.0, "latency_ms": 1.0, "spread": 0.01, "sequence_id": 7}
    )
    records.append(path, {"config": config[1], "error_code": 8})
    records.append(path, {"config": config[2], "error_code": 6, "error": "slow"})
    found = report.load(tmp_path)
    assert report.summary(found) == "3 trials (2 no_error, 1 build_timeout); best 3 TFLOPS"
    lines = report.table(found).splitlines()
    assert len(lines) == 3 and lines[1].split() == ["1", "3", "1", "1.0%", "7", "X", "1x1"]
