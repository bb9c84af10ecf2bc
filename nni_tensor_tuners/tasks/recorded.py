"""What records are of: the features of their programs, for models that learn from any task."""

import functools
import json

from .device import GENERIC, find_device
from .network.definition import own_config
from .registry import from_dict

# Of what `tasks.features` says of programs. Features that a record has of another version are made anew.
FEATURES_VERSION = 2


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
    if record.get("features_version") == FEATURES_VERSION and kind in record["features"]:
        return record["features"][kind]
    try:
        describe = _describer(json.dumps(record["workload"]), record["device"]["kind"], kind)
    except (KeyError, TypeError, ValueError):  # an experiment of something else, or a task from outside that is not here
        return None
    return describe(own_config(record)) if "config" in record else None


@functools.cache
def _describer(workload, device_kind, kind):
    device = find_device("cpu") if device_kind == "cpu" else GENERIC[device_kind]
    return from_dict(json.loads(workload)).describer(device, kind)
