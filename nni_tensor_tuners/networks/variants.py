"""Which of a model's convolutions are computed in Winograd's way: those that are faster so, by the default schedules of both."""

from ..tasks.network import lower, winograd
from ..tasks.program import Program
from ..tasks.program.load import save
from ..tasks.shared import shared_folder
from .earlier import measure_defaults

# What was measured to choose, for all models on this machine.
VARIANTS = "variants.jsonl"


def faster_by_winograd(model, device, progress, text):
    """The shapes (`winograd.shape_of`) of a model's convolutions that take less time so, and the m of each.

    Parameters
    ----------
    model
        What `models.read` returned.
    device
        A `Device`; only on CPUs there is a choice.
    progress, text
        As for `prepare.prepare`.
    """
    if device.kind != "cpu":
        return {}
    shapes = winograd.fits(lower.channels_last(model, device), device.vector_lanes)

    def takes(shape, ways):
        found = {}
        for name, function, count in lower.tasks(lower.lowered(winograd.alone(shape), device, ways), device):
            found[name] = Program(str(save(function, shared_folder()))), count
        measured = measure_defaults(found, shared_folder() / VARIANTS, device, progress, text)
        latency = {record["workload"]["sha256"]: record["latency_ms"] for record in measured if record["error_code"] == 0}
        return sum(count * latency.get(program.sha256, float("inf")) for program, count in found.values())

    chosen = {}
    for number, shape in enumerate(shapes, 1):
        progress.show(f"{text}: comparing ways to compute its convolutions, {number} of {len(shapes)}")
        best = min([{}, *({shape: tile} for tile in winograd.tiles_for(shape))], key=lambda ways: takes(shape, ways))
        chosen.update(best)
    return chosen
