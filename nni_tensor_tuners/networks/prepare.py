"""A model as something to tune: its tasks in files, and what their default schedules take. TVM is imported inside functions."""

import json
import time
from pathlib import Path

from ..measure import measure
from ..space import SearchSpace
from ..study import records
from ..tasks.network import Network, lower, models
from ..tasks.network.definition import DEFAULTS, configuration
from ..tasks.program import Program
from ..tasks.program.load import save
from ..tasks.shared import write_whole

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
    found, left = {}, {}  # name -> (program, count); name -> why it is not tuned
    for name, function, count in split(text, batch, device):
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
        "model": _absolute(text),
        "batch": batch,
        "device": device.label(),
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
    if (known := _known(folder, described)) is not None:
        return known
    defaults = _measure_defaults(found, folder / DEFAULTS, device, progress, text)
    by_sha = {record["workload"]["sha256"]: record["latency_ms"] for record in defaults if record["error_code"] == 0}
    taken = {each["name"]: each["count"] * by_sha.get(each["sha256"], 0.0) for each in described["tasks"]}
    for each in described["tasks"]:
        matters = each["sha256"] not in by_sha or taken[each["name"]] >= LEAST_SHARE * sum(taken.values())
        each["tuned"] = matters and _has_choices(found[each["name"]][0], device)
    if not any(each["tuned"] for each in described["tasks"]):
        raise ValueError(f"model {text}: none of its {len(found)} tasks has more than one schedule")
    write_whole(folder / MANIFEST, json.dumps(described, indent=1) + "\n")
    return Network(str(folder / MANIFEST))


def split(text, batch, device):
    """The tasks of a model: (name, PrimFunc, how often it is called) of each, those that take most operations first."""
    from tvm import IRModule, s_tir

    module = lowered(text, batch, device)
    made = lower.tasks(module, device)
    flop = {name: s_tir.analysis.estimate_tir_flops(IRModule({"main": function})) for name, function, _ in made}
    names = _short_names([name for name, _, _ in made])
    return [(names[each[0]], *each[1:]) for each in sorted(made, key=lambda each: (-flop[each[0]] * each[2], each[0]))]


def lowered(text, batch, device):
    """A model, read and lowered (`lower.lowered`); ValueError in one line where that cannot be."""
    module = models.read(text, batch)
    try:
        return lower.lowered(module, device)
    except ValueError as error:
        raise ValueError(f"model {text}: {error}") from None
    except Exception as error:  # whatever a pass of TVM raises
        last = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
        raise ValueError(f"model {text}: TVM cannot lower it: {last[-1][:300]}") from None


def _known(folder, described):
    """The network that is in a folder, if it is the one described."""
    try:
        known = Network(str(folder / MANIFEST))
        same = {**known.description, "tasks": [{**each, "tuned": None} for each in known.description["tasks"]]}
    except (ValueError, KeyError, TypeError):
        return None
    wanted = {**described, "tasks": [{**each, "tuned": None} for each in described["tasks"]]}
    return known if json.loads(json.dumps(wanted)) == same else None


def _has_choices(program, device):
    return SearchSpace.from_json(program.search_space(device)).size > 1


def _measure_defaults(found, path, device, progress, text):
    """The records of default schedules, those that an interrupted call measured among them."""
    known = {record["workload"]["sha256"]: record for record in records.read(path)}
    for number, (name, (program, _)) in enumerate(found.items(), 1):
        if program.sha256 in known:
            continue
        settle = program.settler(device)
        config = next(filter(None, map(settle, program.first(device))), None)
        if config is None:
            continue
        record = {
            "task": program.id,
            "config": configuration(name, config),
            **measure(program, config, device, cold=True),
            "cold": True,
            "workload": program.to_dict(),
            "device": device.label(),
            "time": time.time(),
        }
        records.append(path, record)
        known[program.sha256] = record
        progress.show(f"{text}: measuring default schedules, {number} of {len(found)}")
    wanted = {program.sha256 for program, _ in found.values()}
    return [record for record in known.values() if record["workload"]["sha256"] in wanted]


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
