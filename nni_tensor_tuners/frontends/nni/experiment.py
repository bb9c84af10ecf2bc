"""Experiment files: writing them for a workload, checking them before they start, and finding what an experiment left."""

import json
import os
import random
import re
import shlex
import subprocess
import sys
from pathlib import Path

import yaml

from . import records
from .device import KINDS, kind_of
from .manager import known_experiments
from .schedules import get_template
from .search import check_names
from .space import SearchSpace
from .tuner import make_search, read_histories

TRIAL_SCRIPTS = {
    "matmul": "matmul.py",
    "batch_matmul": "batch_matmul.py",
    "conv1d": "conv.py",
    "conv2d": "conv.py",
    "conv3d": "conv.py",
}

# Search -> the name NNI knows it by and the arguments worth showing in an experiment file, with the papers' values.
TUNERS = {
    "WalkGP": ("WalkGP", {"initial": 4, "offspring": 300, "failure_weight": 2}),
    "OpEvo": ("OpEvo", {"parents_size": 8, "offspring_size": 8, "mutate_rate": 0.5}),
    "GBFS": ("GBFS", {"num_samples": 5}),
    "NA2C": ("NA2C", {"n_states": 6, "n_steps": 3, "hidden_size": 128, "lr": 0.001, "exploration": 0.1}),
    "AutoTVM": ("AutoTVM", {"batch_size": 64, "objective": "rank", "acquisition": "mean", "epsilon": 0.05}),
    "NoSE": ("NoSE", {"population_size": 16, "neighbours": 9, "mutation_rate": 0.3}),
    "Genetic": ("Genetic", {"population_size": 16, "elite_size": 3, "mutation_rate": 0.1}),
    "Random": ("RandomSearch", {}),
}

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


def describe(workload, devices, extended=False):
    """The search space of a workload, and its constraints by device kind.

    Parameters
    ----------
    workload
        A workload.
    devices
        Devices of different kinds, which must share one search space.
    extended
        Whether the space has more parameters than the papers'.

    Returns
    -------
    dict
        ``search_space`` (NNI JSON) and ``constraints`` (kind -> list of expressions).
    """
    templates = {device.kind: get_template(workload, device.kind) for device in devices}
    spaces = [template.search_space(workload, extended) for template in templates.values()]
    if any(space != spaces[0] for space in spaces):
        raise ValueError(f"{workload.operator}: the templates span different spaces; name one target")
    constraints = {device.kind: templates[device.kind].constraints(workload, device, extended) for device in devices}
    return {"search_space": spaces[0], "constraints": constraints}


def write_folder(folder, name, arguments, workload, devices, trials="trials", extended=False):
    """Write ``search_space.json`` and one YAML per search to a folder.

    Parameters
    ----------
    folder
        Created if need be.
    name
        The experiments' name.
    arguments
        The trial script's arguments that name the workload.
    workload, devices, extended
        As for `describe`.
    trials
        The folder of the trial scripts; the YAML names it relative to its own.

    Returns
    -------
    list
        The paths written.
    """
    described = describe(workload, devices, extended)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    space = folder / "search_space.json"
    space.write_text(_json_by_line(described["search_space"]), encoding="utf-8")
    paths = [space]
    for search, (tuner, class_args) in TUNERS.items():
        lines = [
            f"experimentName: {name}-{search.lower()}",
            "searchSpaceFile: search_space.json",
            f"trialCommand: python3 {TRIAL_SCRIPTS[workload.operator]} {arguments}{' --space extended' if extended else ''}",
            f"trialCodeDirectory: {os.path.relpath(trials, folder)}",
            "trialConcurrency: 4  # trials compile side by side; one at a time times on the device",
            "maxTrialNumber: 512",
            "maxTrialDuration: 10m",
            "tuner:",
            f"  name: {tuner}",
            "  classArgs:",
            "    optimize_mode: maximize  # TFLOPS",
            "    seed: 0",
            *(f"    {key}: {value}" for key, value in class_args.items()),
            *(f"    target: {device.kind}  # what --rpc leads to" for device in devices if device.rpc),
            "    constraints:  # those of the device that the trials run on count",
        ]
        for kind, expressions in described["constraints"].items():
            lines += [f"      {kind}:", *(f'        - "{expression}"' for expression in expressions)]
        lines += ["trainingService:", "  platform: local", ""]
        path = folder / f"{search.lower()}.yml"
        path.write_text("\n".join(lines), encoding="utf-8")
        paths.append(path)
    return paths


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
    path = Path(path)
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
    _check_with_nni(path)
    return experiment


def find_folder(experiment=None):
    """The folder of an experiment, by its id or by a path; the latest one for None.

    Raises
    ------
    ValueError
        If there is none, or nothing has been recorded in it.
    """
    home = Path("~/nni-experiments").expanduser()
    named = Path(experiment).expanduser() if experiment else home / "_latest"
    candidates = [named, named.parent if named.name == records.RECORDS else named]
    if experiment in (known := known_experiments()):
        candidates.append(Path(known[experiment]["logDir"]) / experiment)
    folder = next((c for c in candidates if (c / records.RECORDS).is_file()), None)
    if folder is None:
        what = f"'{experiment}'" if experiment else "a latest experiment"
        raise ValueError(f"experiment: no records of {what} found; give an experiment's id or its folder")
    return folder.resolve()


def resolve_sources(folder, class_args):
    """A tuner's ``classArgs`` with absolute paths for the earlier records that ``warm_start`` and ``transfer`` name.

    They may be named relative to the experiment file, which is in ``folder``.

    Raises
    ------
    ValueError
        If there is no such record.
    """
    resolved = dict(class_args)
    if "warm_start" in class_args:
        resolved["warm_start"] = _resolve_source(folder, "warm_start", class_args["warm_start"])
    if "transfer" in class_args:
        sources = class_args["transfer"]
        sources = sources if isinstance(sources, list) else [sources]
        resolved["transfer"] = [_resolve_source(folder, "transfer", source) for source in sources]
    return resolved


def _resolve_source(folder, field, source):
    if not isinstance(source, str):
        raise ValueError(f"{field}: expected an experiment's id, its folder or its records file, got {source!r}")
    found = records.locate(folder / Path(source).expanduser())
    if found is not None:
        return str(found.resolve())
    try:
        return str(find_folder(source))
    except ValueError:
        raise ValueError(f"{field}: no records at {source!r}") from None


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
    script = next((word for word in words if word.endswith(".py")), None)
    if script is None:
        return None
    if not (code / script).is_file():
        raise ValueError(f"trialCommand: there is no {script} in trialCodeDirectory {code}")
    if not re.search(r"^\s*(from|import) nni_tensor_tuners\b", _read(code / script, "trialCommand"), re.MULTILINE):
        return None
    if words[0] not in ("python", "python3"):
        raise ValueError(f"trialCommand: must start with python3, or stopping a trial would not reach it; got {words[0]!r}")
    service = experiment["trainingService"]
    if isinstance(service, list) or service.get("platform") != "local":
        return None
    command = [sys.executable, *words[1:], "--describe"]
    try:
        asked = subprocess.run(command, cwd=code, capture_output=True, text=True, check=False, timeout=60)
        if asked.returncode != 0:
            raise ValueError((asked.stderr.strip().splitlines() or ["it failed"])[-1])
        described = json.loads(asked.stdout)
    except (ValueError, subprocess.TimeoutExpired) as error:
        raise ValueError(f"trialCommand: {error}") from None
    for name in {**described["search_space"], **search_space}:
        ours, given = described["search_space"].get(name), search_space.get(name)
        if ours != given:
            raise ValueError(f"search space parameter '{name}': the trial's template has {ours}, the search space {given}")
    return described["kind"]


def _check_tuner(folder, tuner, search_space, kind):
    name, class_args = tuner.get("name"), tuner.get("classArgs") or {}
    if not isinstance(class_args, dict):
        raise ValueError(f"classArgs: expected arguments by name, got {class_args!r}")
    searches = {registered: search for search, (registered, _) in TUNERS.items()}
    if not isinstance(name, str) or name not in searches:
        hint = " (NNI keeps the name Random for its own; ours is RandomSearch)" if name == "Random" else ""
        raise ValueError(f"tuner name: expected one of {', '.join(searches)}, got {name!r}{hint}")
    if kind and isinstance(class_args.get("constraints"), dict):
        chosen = kind_of(class_args.get("target", "auto"))
        if chosen != kind:
            raise ValueError(f"target: trials run on {kind}, the tuner takes the constraints for {chosen}; say target: {kind}")
    class_args = resolve_sources(folder, class_args)
    for each in [kind] if kind else KINDS:
        try:
            search = make_search(searches[name], search_space, class_args, each)
            search.space.sample(random.Random(0))
            if class_args.get("transfer"):
                search.transfer(read_histories(class_args["transfer"], class_args.get("optimize_mode", "maximize")))
        except ValueError as error:
            raise ValueError(f"tuner: {error}" if "search space" not in str(error) else str(error)) from None


def _check_with_nni(path):
    """Whatever else NNI refuses."""
    from nni.experiment.config import ExperimentConfig

    try:
        ExperimentConfig.load(path).canonical_copy().validate()
    except Exception as error:
        raise ValueError(f"experiment: NNI refuses it: {' '.join(str(error).split()) or type(error).__name__}") from None


def _json_by_line(space):
    lines = [f"  {json.dumps(name)}: {json.dumps(spec)}" for name, spec in space.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"
