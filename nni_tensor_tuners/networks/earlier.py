"""What is known of a network's tasks before its first trial: their default schedules, and what other experiments measured."""

import json
from pathlib import Path

from ..study import records
from ..tasks.network.definition import DEFAULTS, EARLIER

# What is kept of a record of another experiment.
KEPT = ("error_code", "error", "latency_ms", "tflops", "early_stopped", "cold", "time")


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
