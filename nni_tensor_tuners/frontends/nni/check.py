"""Checking experiment files before they start."""

import contextlib
import functools
import json
import random
import re
import shlex
import subprocess
import sys
from pathlib import Path

import yaml

from ...search import check_names
from ...search.registry import search_named_by_nni
from ...space import SearchSpace
from ...tasks.device import KINDS, kind_of
from .experiment import TRIAL_MODULE
from .folders import resolve_sources, sources_of
from .settings import make_search, objective_of, read_histories, task_of

FIELDS = (
    "experimentName experimentType searchSpaceFile searchSpace trialCommand trialCodeDirectory trialConcurrency trialGpuNumber "
    "maxExperimentDuration maxTrialNumber maxTrialDuration nniManagerIp useAnnotation debug logLevel "
    "experimentWorkingDirectory tunerGpuIndices tuner assessor advisor trainingService sharedStorage"
).split()

# Field -> (type, its name in an error).
TYPES = {
    "trialCommand": (str, "a command"),
    "trialCodeDirectory": (str, "a folder"),
    "searchSpaceFile": (str, "a file"),
    "searchSpace": (dict, "parameters by name"),
    "experimentWorkingDirectory": (str, "a folder"),
    "tuner": (dict, "a name and classArgs"),
    "trainingService": ((dict, list), "a platform"),
}


def check(path):
    """Check an experiment file as far as can be without starting it.

    The tuner's settings and the search space are read as the tuner will read them; a trial script of ours is asked which
    search space it spans on this machine, if that is where it will run.

    Returns
    -------
    dict
        The file's content.

    Raises
    ------
    ValueError
        In one line that names the bad field.
    """
    (experiment,) = check_all([path])
    return experiment


def check_all(paths):
    """Check several files one after the other, each as `check` does; generates their contents. NNI is asked in one process."""
    with _asking_nni() as refusal:
        for path in paths:
            yield _check(Path(path), refusal)


def _check(path, refusal):
    experiment = _load_yaml(path)
    check_names("experiment: there is no field", experiment, FIELDS)
    for field in ("trialCommand", "trialConcurrency", "tuner", "trainingService"):
        if experiment.get(field) is None:
            raise ValueError(f"{field}: missing")
    for field, (kind, expected) in TYPES.items():
        value = experiment.get(field)
        if value is not None and (not isinstance(value, kind) or value == ""):
            raise ValueError(f"{field}: expected {expected}, got {value!r}")
    for field in ("trialConcurrency", "maxTrialNumber"):
        value = experiment.get(field, 1)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{field}: expected an integer >= 1, got {value!r}")
    search_space = _load_search_space(path.parent, experiment)
    SearchSpace.from_json(search_space)
    kind = _check_trial(path.parent, experiment, search_space)
    _check_tuner(path.parent, experiment["tuner"], search_space, kind)
    if (refused := refusal(path)) is not None:
        raise ValueError(f"experiment: NNI refuses it: {refused}")
    return experiment


def _load_yaml(path):
    try:
        content = yaml.safe_load(_read(path, "experiment"))
    except yaml.YAMLError as error:
        raise ValueError(f"experiment: {path} is no YAML ({' '.join(str(error).split())})") from None
    if not isinstance(content, dict):
        raise ValueError(f"experiment: {path} has no fields")
    return content


def _load_search_space(folder, experiment):
    if experiment.get("searchSpace") is not None:
        return experiment["searchSpace"]
    if experiment.get("searchSpaceFile") is None:
        raise ValueError("searchSpaceFile: missing")
    path = folder / experiment["searchSpaceFile"]
    text = _read(path, "searchSpaceFile")
    try:
        search_space = json.loads(text)
    except ValueError as error:
        raise ValueError(f"searchSpaceFile: {path} is no JSON ({error})") from None
    if not isinstance(search_space, dict):
        raise ValueError(f"searchSpaceFile: expected parameters by name, got {search_space!r}")
    return search_space


def _read(path, field):
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"{field}: cannot read {path} ({error.strerror})") from None
    except UnicodeDecodeError:
        raise ValueError(f"{field}: {path} is no text") from None


def _check_trial(folder, experiment, search_space):
    """Returns the device kind that the trials will run on; None where it cannot be asked: another's script, other machines."""
    try:
        words = shlex.split(experiment["trialCommand"])
    except ValueError as error:
        raise ValueError(f"trialCommand: {error}") from None
    code = folder / (experiment.get("trialCodeDirectory") or ".")
    if not _is_ours(words, code):
        return None
    if words[0] not in ("python", "python3"):
        raise ValueError(f"trialCommand: must start with python3, or stopping a trial would not reach it; got {words[0]!r}")
    service = experiment["trainingService"]
    if isinstance(service, list) or service.get("platform") != "local":
        return None
    try:
        described = _describe(tuple(words[1:]), code)
    except (ValueError, subprocess.TimeoutExpired) as error:
        raise ValueError(f"trialCommand: {error}") from None
    for name in {**described["search_space"], **search_space}:
        ours, given = described["search_space"].get(name), search_space.get(name)
        if ours != given:
            raise ValueError(f"search space parameter '{name}': the trial's template has {ours}, the search space {given}")
    return described["kind"]


@functools.cache  # a folder's experiments have one trial command, and it loads TVM
def _describe(arguments, code):
    command = [sys.executable, *arguments, "--describe"]
    asked = subprocess.run(command, cwd=code, capture_output=True, text=True, check=False, timeout=60)
    if asked.returncode != 0:
        raise ValueError((asked.stderr.strip().splitlines() or ["it failed"])[-1])
    return json.loads(asked.stdout)


def _is_ours(words, code):
    """Whether a trial command runs this package's trial: its module, or a script that imports the package."""
    if TRIAL_MODULE in words:
        return True
    script = next((word for word in words if word.endswith(".py")), None)
    if script is None:
        return False
    if not (code / script).is_file():
        raise ValueError(f"trialCommand: there is no {script} in trialCodeDirectory {code}")
    return bool(re.search(r"^\s*(from|import) nni_tensor_tuners\b", _read(code / script, "trialCommand"), re.MULTILINE))


def _check_tuner(folder, tuner, search_space, kind):
    name, class_args = tuner.get("name"), tuner.get("classArgs") or {}
    if not isinstance(class_args, dict):
        raise ValueError(f"classArgs: expected arguments by name, got {class_args!r}")
    try:
        search = search_named_by_nni(name)
    except ValueError as error:
        raise ValueError(f"tuner name: {error}") from None
    if kind and isinstance(class_args.get("constraints"), dict):
        chosen = kind_of(class_args.get("target", "auto"))
        if chosen != kind:
            raise ValueError(f"target: trials run on {kind}, the tuner takes the constraints for {chosen}; say target: {kind}")
    class_args = resolve_sources(folder, class_args)
    task_of(class_args)
    for each in [kind] if kind else KINDS:
        try:
            made = make_search(search, search_space, class_args, each)
            made.space.sample(random.Random(0))
            if transfer := class_args.get("transfer"):
                found = read_histories(sources_of(transfer), objective_of(class_args), made.transfer_features)
                made.transfer(found)
            if class_args.get("task") is None:
                made.check_described()
        except ValueError as error:
            raise ValueError(f"tuner: {error}" if "search space" not in str(error) else str(error)) from None


# In a process of its own, one for all files: the nni package takes a second to import, and takes over logging.
NNI_CHECK = """
import json, os, sys
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # nni logs to standard output
from nni.experiment.config import ExperimentConfig
for line in sys.stdin:
    try:
        ExperimentConfig.load(json.loads(line)).canonical_copy().validate()
        refusal = None
    except Exception as error:
        refusal = " ".join(str(error).split()) or type(error).__name__
    print(json.dumps(refusal), file=answers, flush=True)
"""


@contextlib.contextmanager
def _asking_nni():
    """A function that says why NNI refuses an experiment file; None where it does not."""
    command = [sys.executable, "-c", NNI_CHECK]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:

        def refusal(path):
            try:
                print(json.dumps(str(path.resolve())), file=process.stdin, flush=True)
                return json.loads(process.stdout.readline())
            except (OSError, ValueError):
                return "it failed"

        try:
            yield refusal
        finally:
            process.kill()
