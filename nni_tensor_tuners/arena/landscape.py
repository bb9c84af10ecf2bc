"""Landscapes: spaces whose configurations have all been measured before, so that searches can be replayed on them."""

import csv
import gzip
import json
import math
import zlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from ..measure import ErrorCode
from ..space import ListedSpace, SearchSpace, by_values
from ..study import records
from ..tasks import from_dict
from ..tasks.device import GENERIC
from ..tasks.shared import write_whole

MANIFEST = "MANIFEST.json"
# Kernel Tuner writes this for a configuration that failed where its objective has no word for it.
KERNEL_TUNER_FAILED = 1e20
# Of a normal distribution, from quartile to quartile: so many standard deviations.
NORMAL_QUARTILES = 1.349
COMPILE_FAILED = (
    ErrorCode.INSTANTIATION_ERROR,
    ErrorCode.COMPILE_HOST,
    ErrorCode.COMPILE_DEVICE,
    ErrorCode.BUILD_TIMEOUT,
)


@dataclass(frozen=True)
class Landscape:
    """A recording.

    Attributes
    ----------
    name
        What it is called in tables.
    space
        A `ListedSpace`.
    fitness
        point -> fitness, higher is better; None where the configuration failed.
    """

    name: str
    space: ListedSpace
    fitness: dict

    @property
    def optimum(self):
        """The highest fitness recorded."""
        return max(fitness for fitness in self.fitness.values() if fitness is not None)


def load(path):
    """Every landscape that a path names.

    Parameters
    ----------
    path
        A folder with a ``MANIFEST.json`` (parameters of each landscape; the rows are in ``NAME.csv.gz`` beside it) or one of
        its CSV files; a Kernel Tuner cache file or T4 results file, as JSON; an experiment's folder or records file. Files may
        be gzipped.

    Returns
    -------
    list of Landscape

    Raises
    ------
    ValueError
        In one line, if there is none or it cannot be read.
    """
    path = Path(path).expanduser()
    try:
        if (path / MANIFEST).is_file():
            manifest = json.loads(records.read_text(path / MANIFEST))
            return [_from_table(name, entry, _table(path, name)) for name, entry in manifest.items()]
        if _has_suffix(path, ".csv"):
            manifest = json.loads(records.read_text(path.parent / MANIFEST))
            name = path.name.removesuffix(".gz").removesuffix(".csv")
            if name not in manifest:
                raise ValueError(f"{MANIFEST} beside it has no {name!r}")
            return [_from_table(name, manifest[name], path)]
        if _has_suffix(path, ".json"):
            return [
                _from_kernel_tuner(path.name.removesuffix(".gz").removesuffix(".json"), json.loads(records.read_text(path)))
            ]
        found = records.locate(path)
        if found is None:
            raise ValueError(f"expected a folder with a {MANIFEST}, a CSV, a Kernel Tuner cache or an experiment's records")
        return [_from_records(_name_of_records(found), records.read(found))]
    except FileNotFoundError as error:
        raise ValueError(f"landscape {path}: there is no {Path(error.filename).name}") from None
    except (OSError, EOFError, zlib.error, csv.Error) as error:
        raise ValueError(f"landscape {path}: cannot be read ({error})") from None
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"landscape {path}: not the expected layout ({type(error).__name__}: {error})") from None
    except ValueError as error:
        raise ValueError(f"landscape {path}: {error}") from None


def write(found, task, device, constraints, complete, name, folder):
    """Write a recording as a folder that `load` takes: ``NAME.csv.gz``, and its entry in ``MANIFEST.json``.

    The columns are the parameters, ``time_ms``, ``std_ms``, ``status``, and of each trial its ``error_code`` and ``seconds``.

    Parameters
    ----------
    found
        Records of one task on one device, a configuration in each.
    task, device, constraints
        What they are of; constraints beyond the device's.
    complete
        Whether they are of all configurations.
    name
        Of the recording.
    folder
        One that exists; recordings that it has stay.
    """
    search_space = task.search_space(device)
    restrictions = [*task.constraints(device), *constraints]
    columns = [*search_space, "time_ms", "std_ms", "status", "error_code", "seconds"]
    statuses, times = Counter(), []
    with gzip.open(folder / f"{name}.csv.gz", "wt", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        for record in found:
            cells = [json.dumps(record["config"][key]) for key in search_space]
            if records.succeeded(record):
                status = "ok"
                times.append(record["latency_ms"])
                cells += [f"{record['latency_ms']:.6g}", f"{record['spread'] * record['latency_ms'] / NORMAL_QUARTILES:.3g}"]
            else:
                status = "compile_failed" if record["error_code"] in COMPILE_FAILED else "runtime_failed"
                cells += ["", ""]
            statuses[status] += 1
            writer.writerow([*cells, status, record["error_code"], f"{record['trial_seconds']:.3f}"])
    path = folder / MANIFEST
    manifest = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    manifest[name] = {
        "source": "tensor-tuners record",
        "device": device.name,
        "kernel": task.operator,
        "workload": task.to_dict(),
        "params": search_space,
        "restrictions": restrictions,
        "complete": complete,
        "configs": len(found),
        "status": dict(statuses),
        "seconds": round(sum(record["trial_seconds"] for record in found), 1),
        **({"min_ms": min(times), "median_ms": median(times), "max_ms": max(times)} if times else {}),
    }
    write_whole(path, json.dumps(manifest, indent=1) + "\n")


def _landscape(name, search_space, rows):
    """A landscape from NNI search-space JSON and (configuration, fitness or None) pairs.

    Parameters with a single value are left out: there is nothing to search. A configuration measured more than once has the
    median.
    """
    space = SearchSpace.from_json(search_space)
    live = [parameter for parameter in space.parameters if parameter.size > 1]
    measured = {}
    for config, fitness in rows:
        point = tuple(parameter.encode(config[parameter.name]) for parameter in live)
        successes = measured.setdefault(point, [])
        if fitness is not None and math.isfinite(fitness):
            successes.append(fitness)
    if not any(measured.values()):
        raise ValueError("no configuration in it succeeded")
    return Landscape(name, ListedSpace(live, measured), {p: median(f) if f else None for p, f in measured.items()})


def _from_table(name, entry, path):
    search_space = {key: value if isinstance(value, dict) else by_values(value) for key, value in entry["params"].items()}
    rows = (
        ({key: json.loads(row[key]) for key in search_space}, 1 / _positive(row["time_ms"]) if row["status"] == "ok" else None)
        for row in csv.DictReader(records.read_text(path).splitlines())
    )
    return _landscape(name, search_space, rows)


def _positive(text):
    time = float(text)
    if not time > 0:
        raise ValueError(f"time_ms: expected a number > 0 where status is ok, got {text}")
    return time


def _from_kernel_tuner(name, content):
    """Kernel Tuner's own cache file, or a results file of the T4 format (auto-tuning community) that it also writes."""
    if "cache" in content:
        keys = content["tune_params_keys"]
        rows = [
            (_configuration(key, entry, content), _milliseconds(entry.get("time"))) for key, entry in content["cache"].items()
        ]
    elif "results" in content:
        keys = list(content["results"][0]["configuration"])
        rows = [(result["configuration"], _milliseconds(_measured_time(result))) for result in content["results"]]
    else:
        raise ValueError("neither a Kernel Tuner cache nor T4 results")
    # The listed values, and in their absence those that occur.
    listed = content.get("tune_params", {})
    values = {key: listed.get(key) or list(dict.fromkeys(config[key] for config, _ in rows)) for key in keys}
    return _landscape(name, {key: by_values(value) for key, value in values.items()}, ((c, t and 1 / t) for c, t in rows))


def _configuration(key, entry, content):
    """The parameters of a cache entry; older files have them in its key only."""
    names = content["tune_params_keys"]
    if all(name in entry for name in names):
        return entry
    by_text = [{str(value): value for value in content["tune_params"][name]} for name in names]
    return {name: values[text] for name, values, text in zip(names, by_text, key.split(","))}


def _measured_time(result):
    times = (m["value"] for m in result.get("measurements", []) if m.get("name") == "time")
    return next(times, None) if result.get("invalidity", "correct") == "correct" else None


def _milliseconds(time):
    """A time, or None for what Kernel Tuner writes in its place when a configuration failed."""
    valid = isinstance(time, (int, float)) and not isinstance(time, bool) and 0 < time < KERNEL_TUNER_FAILED
    return float(time) if valid else None


def _from_records(name, found):
    measured = [record for record in found if "workload" in record]
    kinds = {json.dumps([record["workload"], record["device"]["kind"]], sort_keys=True) for record in measured}
    if len(kinds) != 1:
        raise ValueError(f"expected records of one workload on one kind of device, found {len(kinds)}")
    task, kind = from_dict(measured[0]["workload"]), measured[0]["device"]["kind"]
    device = GENERIC[kind]
    paper = task.search_space(device)
    search_space = task.search_space(device, extended=set(measured[0]["config"]) != set(paper))
    rows = ((record["config"], record["tflops"] if records.succeeded(record) else None) for record in measured)
    return _landscape(name, search_space, rows)


def _name_of_records(path):
    name = path.name.removesuffix(".gz").removesuffix(".jsonl")
    return path.parent.name if path.name == records.RECORDS else name


def _table(folder, name):
    return next((p for p in (folder / f"{name}.csv.gz", folder / f"{name}.csv") if p.is_file()), folder / f"{name}.csv.gz")


def _has_suffix(path, suffix):
    return path.name.endswith((suffix, f"{suffix}.gz"))
