"""A model as something to tune: its tasks in files, and what their default schedules take. TVM is imported inside functions."""

import contextlib
import json
from pathlib import Path

from ..space import SearchSpace
from ..tasks.network import Network, lower, models
from ..tasks.network.definition import DEFAULTS, own_config
from ..tasks.program import DLIGHT, Program
from ..tasks.program.load import save
from ..tasks.shared import write_whole
from .earlier import measure_defaults
from .variants import faster_by_winograd

MANIFEST = "network.json"
# Of the network's time; a task that takes less by default is left as it is.
LEAST_SHARE = 0.01


def prepare(text, folder, device, progress, batch=None):
    """Write a model's tasks to a folder, and measure the default schedule of each, where there is one.

    A folder that has been prepared for the same model is taken as it is, with what was measured.

    Parameters
    ----------
    text, batch
        The model, as for `models.read`.
    folder
        Made if need be. It gets ``network.json``, ``tasks/`` and ``defaults.jsonl``.
    device
        The `Device` to tune for.
    progress
        With ``show`` and ``say``, as `cli.progress.Progress`.

    Returns
    -------
    Network

    Raises
    ------
    ValueError
        In one line, if the model cannot be read, or nothing of it can be tuned.
    """
    folder = Path(folder)
    programs = folder / "tasks"
    programs.mkdir(parents=True, exist_ok=True)
    progress.say(f"{text}: reading the model")
    model = models.read(text, batch)
    about = {"model": _absolute(text), "batch": batch, "device": device.label()}
    before = _described(folder, about)
    with _in_one_line(text):
        winograd = before.get("winograd")
        if winograd is None:
            winograd = faster_by_winograd(model, device, progress, text)
        module = lower.lowered(model, device, winograd)
    found, left = {}, {}  # name -> (program, count); name -> why it is not tuned
    for name, function, count in _named_tasks(module, device):
        try:
            found[name] = Program(str(save(function, programs))), count
            found[name][0].sketches(device)
        except ValueError as error:
            found.pop(name, None)
            left[name] = str(error)
        progress.show(f"{text}: making sketches of its tasks, {len(found)} so far")
    if not found:
        raise ValueError(f"model {text}: nothing of it can be tuned" + "".join(f"; {each}" for each in list(left.values())[:1]))
    described = {
        **about,
        "winograd": winograd,
        "tasks": [
            {
                "name": name,
                "count": count,
                "flop": program.flop,
                "file": f"{programs.name}/{Path(program.path).name}",
                "sha256": program.sha256,
            }
            for name, (program, count) in found.items()
        ],
        "left": left,
    }
    if _without_choice(before) == json.loads(json.dumps(_without_choice(described))):
        return Network(str(folder / MANIFEST))
    defaults = measure_defaults(found, folder / DEFAULTS, device, progress, text)
    succeeded = [record for record in defaults if record["error_code"] == 0]
    by_sha = {record["workload"]["sha256"]: record["latency_ms"] for record in succeeded}
    untold = {record["workload"]["sha256"]: record["latency_ms"] for record in succeeded if own_config(record) == DLIGHT}
    taken = {each["name"]: each["count"] * by_sha.get(each["sha256"], 0.0) for each in described["tasks"]}
    for each in described["tasks"]:
        matters = each["sha256"] not in by_sha or taken[each["name"]] >= LEAST_SHARE * sum(taken.values())
        each["tuned"] = matters and _has_choices(found[each["name"]][0], device)
        each["default_ms"] = untold.get(each["sha256"])
    if not any(each["tuned"] for each in described["tasks"]):
        raise ValueError(f"model {text}: none of its {len(found)} tasks has more than one schedule")
    write_whole(folder / MANIFEST, json.dumps(described, indent=1) + "\n")
    return Network(str(folder / MANIFEST))


def split(text, batch, device):
    """The tasks of a model, lowered: (name, PrimFunc, how often it is called) of each, those that take most operations first."""
    return _named_tasks(lowered(text, batch, device), device)


def _named_tasks(module, device):
    """The tasks of a lowered model, as `split`."""
    from tvm import IRModule, s_tir

    made = lower.tasks(module, device)
    flop = {name: s_tir.analysis.estimate_tir_flops(IRModule({"main": function})) for name, function, _ in made}
    names = _short_names([name for name, _, _ in made])
    return [(names[each[0]], *each[1:]) for each in sorted(made, key=lambda each: (-flop[each[0]] * each[2], each[0]))]


def lowered(text, batch, device, winograd=None):
    """A model, read and lowered (`lower.lowered`); ValueError in one line where that cannot be."""
    module = models.read(text, batch)
    with _in_one_line(text):
        return lower.lowered(module, device, winograd)


@contextlib.contextmanager
def _in_one_line(text):
    """What fails is a ValueError in one line that names the model."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"model {text}: {error}") from None
    except Exception as error:  # whatever a pass of TVM raises
        last = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
        raise ValueError(f"model {text}: TVM cannot lower it: {last[-1][:300]}") from None


def _described(folder, about):
    """What a folder's file says of a network, if it is the one that this is about; else nothing."""
    try:
        described = Network(str(folder / MANIFEST)).description
        same = all(described[key] == value for key, value in json.loads(json.dumps(about)).items())
    except (ValueError, KeyError, TypeError):
        return {}
    return described if same else {}


def _without_choice(described):
    """A description without what depends on measurements: which tasks are tuned, and what others than trials' schedules take."""
    chosen = dict.fromkeys(("tuned", "default_ms"))
    return {**described, "tasks": [{**each, **chosen} for each in described.get("tasks", ())]}


def _has_choices(program, device):
    return SearchSpace.from_json(program.search_space(device)).size > 1


def _short_names(names):
    """TVM's names of fused functions without what all have, and no longer than one can read."""
    short = {}
    for name in names:
        text = name.removeprefix("fused_").replace("tir_", "")
        text = text if len(text) <= 48 else f"{text[:44]}..."
        same = sum(other == text or other.startswith(f"{text}~") for other in short.values())
        short[name] = f"{text}~{same + 1}" if same else text
    return short


def _absolute(text):
    """A model's text with an absolute path, where it has one."""
    where, colon, rest = text.partition(":")
    return f"{Path(where).resolve()}{colon}{rest}" if Path(where).is_file() else text
