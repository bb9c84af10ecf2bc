"""The wheel alone: installed into an environment of its own, used in an empty folder."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from nni_tensor_tuners import __version__
from nni_tensor_tuners.search.registry import SEARCHES

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The folder of the programs of an environment that has the wheel; what it depends on is this environment's."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    shutil.copytree(ROOT / "nni_tensor_tuners", source / "nni_tensor_tuners", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(source)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    assert wheel.name.startswith(f"nni_tensor_tuners-{__version__}-")

    environment = folder / "environment"
    venv.create(environment, symlinks=True, with_pip=False)
    python = environment / "bin" / "python3"
    purelib = Path(
        subprocess.run(
            [python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"],
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
    )
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index", str(wheel)]
    subprocess.run(pip, check=True, capture_output=True)
    (purelib / "dependencies.pth").write_text(f"{sysconfig.get_paths()['purelib']}\n")  # looked through after its own
    return environment / "bin"


@pytest.fixture
def run(installed, tmp_path):
    """Runs a command there; returns what it printed."""
    environment = {**os.environ, "PATH": f"{installed}{os.pathsep}{os.environ['PATH']}", "TENSOR_TUNERS_TARGET": "cpu"}
    environment.pop("PYTHONPATH", None)

    def run_it(*command):
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run_it


def test_the_package_that_runs_is_the_installed_one(run, installed):
    where = run("python3", "-c", "import nni_tensor_tuners; print(nni_tensor_tuners.__file__)")
    assert where.startswith(str(installed.parent))


def test_register_tune_report_and_export_in_an_empty_folder(run, tmp_path):
    assert run("tensor-tuners", "register").split(": ")[1].split(", ")[0] == "WalkGP"
    printed = run("tensor-tuners", "tune", "mm1", "--trials", "3")
    assert "3 trials (3 no_error)" in printed and "x NumPy's" in printed
    (experiment,) = [line.split()[1] for line in printed.splitlines() if line.startswith("experiment ")]
    folder = tmp_path / "runs" / experiment
    assert {"best.json", "kernel.so", "run_kernel.py"} <= {path.name for path in folder.iterdir()}
    assert run("tensor-tuners", "report", experiment).startswith("3 trials (3 no_error)")
    run("tensor-tuners", "export", experiment, "--top", "1", "--rounds", "1", "--output", "kernel")
    assert json.loads((tmp_path / "kernel" / "best.json").read_text())["workload"]["operator"] == "matmul"
    assert "largest difference from NumPy" in run("python3", str(tmp_path / "kernel" / "run_kernel.py"))


def test_an_experiment_folder_written_there_runs_there(run, tmp_path):
    shape = "--batch 1 --in-channels 4 --image 8 8 --out-channels 4 --kernel 3 --padding 1".split()
    written = run("tensor-tuners", "space", "conv2d", *shape, "--output", "mine").split()
    assert len(written) == 1 + sum(not entry.nested for entry in SEARCHES.values())
    run("tensor-tuners", "check", *(path for path in written if path.endswith(".yml")))
    assert "2 trials (2 no_error)" in run("tensor-tuners", "tune", "mine/walkgp.yml", "--trials", "2")


def test_without_nni(run, tmp_path):
    """Killed after some trials, the same command goes on."""
    command = ["tensor-tuners", "tune", "mm1", "--local", "--search", "Random", "--output", "here"]
    assert "1 trials (1 no_error)" in run(*command, "--trials", "1")
    before = (tmp_path / "here" / "records.jsonl").read_text()
    assert "2 trials (2 no_error)" in run(*command, "--trials", "2")
    after = (tmp_path / "here" / "records.jsonl").read_text()
    assert after.startswith(before) and len(after.splitlines()) == 2
