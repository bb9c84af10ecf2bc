"""What is known of a network's tasks before its first trial: their default schedules, and what other experiments measured."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ..measure import measure
from ..study import records
from ..tasks.device import usable_cores
from ..tasks.network.definition import DEFAULTS, EARLIER, configuration

# What is kept of a record of another experiment.
KEPT = ("error_code", "error", "latency_ms", "tflops", "early_stopped", "cold", "time")


def measure_defaults(found, path, device, progress, text):
    """Measure the default schedules of programs, and keep the records; what an interrupted call measured is not measured again.

    Parameters
    ----------
    found
        Name -> (`Program`, how often it is run).
    path
        The records file.
    device, progress, text
        As for `prepare.prepare`.

    Returns
    -------
    list
        The record of the fastest one of each program that has one.
    """
    known = {}
    for record in _of_device(path, device):
        known.setdefault(record["workload"]["sha256"], []).append(record)
    left = {program.sha256: (name, program) for name, (program, _) in found.items() if program.sha256 not in known}

    def measured(named):
        name, program = named
        return [
            {
                "task": program.id,
                "config": configuration(name, config),
                **measure(program, config, device, cold=True),
                "cold": True,
                "workload": program.to_dict(),
                "device": device.label(),
                "time": time.time(),
            }
            for config in program.defaults(device)
        ]

    pool = ThreadPoolExecutor(usable_cores())
    in_turn = pool.map if device.kind == "cuda" else map  # beside a GPU's timing the host compiles; a CPU's would be disturbed
    try:
        for number, of_program in enumerate(in_turn(measured, left.values()), 1):
            for record in of_program:  # all of a program or none: where a call is interrupted, it is measured whole again
                records.append(path, record)
                known.setdefault(record["workload"]["sha256"], []).append(record)
            progress.show(f"{text}: measuring default schedules, {number} of {len(left)}")
    finally:
        pool.shutdown(cancel_futures=True)
    wanted = {program.sha256 for program, _ in found.values()}
    return [min(each, key=_latency) for sha, each in known.items() if sha in wanted]


def _latency(record):
    return record["latency_ms"] if record["error_code"] == 0 else float("inf")


def first_records(network, device):
    """The records of the default schedules that `prepare` measured on a device."""
    return _of_device(Path(network.path).parent / DEFAULTS, device)


def known_records(network, device):
    """`first_records`, and those that `remember` took from earlier experiments."""
    return [*first_records(network, device), *_of_device(Path(network.path).parent / EARLIER, device)]


def remember(network, device, sources):
    """Keep beside a network's file what other experiments' records say of its tasks on a device; returns how many it knows.

    Tasks are the same where their programs are, whatever the names inside. Nothing is kept twice.

    Parameters
    ----------
    sources
        Paths of records files.
    """
    path = Path(network.path).parent / EARLIER
    known = {json.dumps(record["config"]) for record in known_records(network, device)}
    for record in (record for source in sources for record in _of_device(source, device)):
        config = network.config_of(record)
        if config is None or (text := json.dumps(config)) in known:
            continue
        known.add(text)
        task, _ = network.part(config)
        kept = {name: record[name] for name in KEPT if name in record}
        place = {"workload": task.to_dict(), "device": record["device"]}
        records.append(path, {"task": task.id, "config": config, **kept, **place})
    return len(known)


def forget(network):
    """Keep nothing of other experiments any more."""
    (Path(network.path).parent / EARLIER).unlink(missing_ok=True)


def _of_device(path, device):
    label = json.loads(json.dumps(device.label()))
    return [record for record in records.read(path) if record.get("device") == label]
