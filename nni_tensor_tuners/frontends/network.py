"""What networks need beside single tasks: fields of their records, and another end."""

from .. import export, report
from ..tasks.network import Network


def of_network(task, device, earlier, record):
    """What a record says of the network that its task is part of: which it is, how it was timed, and what the network takes by the
    best known kernels.

    Parameters
    ----------
    task
        What is tuned; of anything but a `Network` there is nothing to say.
    device
        The `Device` it runs on.
    earlier, record
        Records of the experiment, and the new one.

    Returns
    -------
    dict
        ``cold``, ``network``, as plain data, and ``estimate_ms``; or nothing.
    """
    if not isinstance(task, Network):
        return {}
    from ..networks.earlier import known_records

    said = {"cold": task.cold, "network": task.to_dict()}
    latencies = task.latencies([*known_records(task, device), *earlier, {**record, **said}])
    return {**said, "estimate_ms": task.estimate(latencies)}


def tell(found, path, title, say, top=10):
    """Say what was found, and write the curve to ``path``, as `report.tell`."""
    if any("network" in record for record in found):
        from ..networks import summary

        summary.tell(found, path, title, say)
    else:
        report.tell(found, path, title, say, top)


def finish(found, output, progress, count=4, rounds=3, into=None):
    """Time the best again, and export it, as `export.finish`; a network is compiled whole."""
    if any("network" in record for record in found):
        from ..networks.finish import finish

        finish(found, output, progress, rounds, into)
    else:
        export.finish(found, output, progress, count, rounds, into)
