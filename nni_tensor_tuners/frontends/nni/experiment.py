"""Experiment files: an operator's search space, and a YAML for each search."""

import json
import os
import re
from pathlib import Path

import yaml

from ...search.registry import SEARCHES
from ...space.nested import is_nested
from ...tasks.network import Network
from ...tasks.network.definition import DEFAULTS, EARLIER
from ...tasks.program import Program

TRIAL_MODULE = "nni_tensor_tuners.trial"

HEADER = """\
# nnictl create --config {name}    (once before: tensor-tuners register)
# {aim}. Trials compile side by side; one at a time times on the device.
# Of the constraints those of the device count that the trials run on.
"""


AIMS = {"maximize": "TFLOPS is maximised", "minimize": "The network's latency, as estimated by its best kernels, is minimised"}


def describe(task, devices, extended=False):
    """The search space of a task, and its constraints by device kind.

    Parameters
    ----------
    task
        A `Task`.
    devices
        Devices of different kinds, which must share one search space.
    extended
        Whether the space has more parameters than the papers'.

    Returns
    -------
    dict
        ``search_space`` (NNI JSON) and ``constraints`` (kind -> list of expressions).
    """
    spaces = [task.search_space(device, extended) for device in devices]
    if any(space != spaces[0] for space in spaces):
        raise ValueError(f"{task.operator}: the devices span different spaces; name one target")
    return {"search_space": spaces[0], "constraints": {device.kind: task.constraints(device, extended) for device in devices}}


def write_folder(folder, name, arguments, task, devices, trials=None, extended=False, searches=None, class_args=None):
    """Write ``search_space.json`` and one YAML per search to a folder.

    Parameters
    ----------
    folder
        Created if need be.
    name
        The experiments' name.
    arguments
        The trial's arguments that name the task.
    task, devices, extended
        As for `describe`.
    trials
        A folder of trial scripts, which the YAML then names relative to its own; None: trials run the package's own module.
    searches
        Their names; left out, all that are of use in this space.
    class_args
        Arguments that the tuners get beside what their tables show.

    Returns
    -------
    list
        The paths written.
    """
    described = describe(task, devices, extended)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    space = folder / "search_space.json"
    space.write_text(_json_by_line(described["search_space"]), encoding="utf-8")
    code = {} if trials is None else {"trialCodeDirectory": os.path.relpath(trials, folder)}
    asked = {}
    if isinstance(task, Network):
        arguments = f"network --path {os.path.relpath(task.path, folder)}"
        asked = {**task.scheduling(), "task": task.to_dict()}
        known = [path for name in (DEFAULTS, EARLIER) if (path := Path(task.path).parent / name).is_file()]
        if known:
            asked["warm_start"] = [os.path.relpath(path, folder) for path in known]
    if isinstance(task, Program):
        task = task.copied_to(folder / "program.json")
        arguments, asked = "program --path program.json", {"task": task.to_dict()}
    command = f"-m {TRIAL_MODULE}" if trials is None else _script(trials, task.operator)
    remote = {"target": device.kind for device in devices if device.rpc}  # what --rpc leads to
    paths = [space, *([Path(task.path)] if asked else [])]
    if searches is None:
        nests, whole = any(map(is_nested, described["search_space"].values())), isinstance(task, Network)
        fits = {search: (nests or not entry.nested) and entry.networks == whole for search, entry in SEARCHES.items()}
        searches = [search for search in SEARCHES if fits[search]]
    for search in searches:
        entry = SEARCHES[search]
        path = folder / f"{search.lower()}.yml"
        content = {
            "experimentName": f"{name}-{search.lower()}",
            "searchSpaceFile": space.name,
            "trialCommand": f"python3 {command} {arguments}{' --space extended' if extended else ''}",
            **code,
            "trialConcurrency": 4,
            "maxTrialNumber": 512,
            "maxTrialDuration": "10m",
            "tuner": {
                "name": entry.nni_name,
                "classArgs": {
                    "optimize_mode": task.optimize_mode,
                    "seed": 0,
                    **entry.shown,
                    **(class_args or {}),
                    **remote,
                    **asked,
                    "constraints": described["constraints"],
                },
            },
            "trainingService": {"platform": "local"},
        }
        write(path, content, HEADER.format(name=path.name, aim=AIMS[task.optimize_mode]))
        paths.append(path)
    return paths


def write(path, content, header=""):
    """Write an experiment to a YAML file, fields in the order given, ``header`` before them."""
    text = yaml.safe_dump(content, sort_keys=False, width=10**6, allow_unicode=True)
    Path(path).write_text(header + text, encoding="utf-8")


def _script(folder, operator):
    """The trial script of an operator: of its own name, or of its name without the dimensions (conv.py of conv2d)."""
    for name in (operator, re.sub(r"\dd$", "", operator)):
        if (Path(folder) / f"{name}.py").is_file():
            return f"{name}.py"
    raise ValueError(
        f"trials: there is no {operator}.py in {folder}; leave --trials out, and trials run the package's own module"
    )


def _json_by_line(space):
    lines = [f"  {json.dumps(name)}: {json.dumps(spec)}" for name, spec in space.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"
