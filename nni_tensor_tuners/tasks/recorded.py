"""What records are of: the features of their programs, for models that learn from any task."""

import functools
import json

from .device import GENERIC, find_device
from .features import VERSION
from .network.definition import own_config
from .registry import from_dict


def features_of(record, kind):
    """The features of a record's program, shape (n,): those in it, else of its task's module, made anew.

    A CPU's program is made for this machine, and a GPU's for any: the loops are those of the configuration.

    Parameters
    ----------
    record
        With ``workload``, ``device`` and ``config``, as trials write it, or with ``features`` ({kind: numbers}) of the present
        ``features_version``.
    kind
        One of `tasks.features.FEATURES`.

    Returns
    -------
    None where it has none, and none can be made.
    """
    known = record.get("features") or {} if record.get("features_version") == VERSION else {}
    if kind in known:
        return known[kind]
    try:
        describe = _describer(json.dumps(record["workload"]), record["device"]["kind"], kind)
    except (KeyError, TypeError, ValueError):  # an experiment of something else, or a task from outside that is not here
        return None
    return describe(own_config(record)) if "config" in record else None


@functools.cache
def _describer(workload, device_kind, kind):
    device = find_device("cpu") if device_kind == "cpu" else GENERIC[device_kind]
    return from_dict(json.loads(workload)).describer(device, kind)
