"""Our templates as sketches of a program that is one of our operators. TVM is imported inside functions only."""

import random
import re

from ...space import SearchSpace
from ..matmul import OPERATORS
from ..matmul.recognise import recognise


def of_program(module, device, prefix):
    """The sketches (`sketches`) that our templates are of a program on a device: one, or none.

    Such a sketch has, in place of a trace, ``task``, the operator as plain data, and ``block``, which computes it in the program;
    ``constraints`` of its own, with ``prefix`` before the names of its parameters, and, where a rule knows one, ``sound``, a
    configuration.
    """
    found = recognise(module)
    if found is None:
        return []
    task, block = found
    specs, constraints = task.search_space(device, extended=True), task.constraints(device, extended=True)
    names = re.compile(rf"\b({'|'.join(specs)})\b")
    sketch = {
        "name": f"template of {task.operator}",
        "task": task.to_dict(),
        "block": block,
        "parameters": {name: {"spec": spec} for name, spec in specs.items()},
        "constraints": [names.sub(rf"{prefix}\1", text) for text in constraints],
        **({"sound": sound} if (sound := task.sound(device)) else {}),
    }
    space = SearchSpace.from_json(specs, constraints)
    try:
        schedule(module, sketch, space.sample(random.Random(0)), device)
    except Exception:  # TVM's ScheduleError, which is no ValueError: what comes after the block does not fit the template
        return []
    return [sketch]


def schedule(module, sketch, config, device):
    """The ``s_tir.Schedule`` of a program by a template; ``config`` has the template's parameters."""
    fields = dict(sketch["task"])
    task = OPERATORS[fields.pop("operator")](**fields)
    return task.schedule(config, device, program=module, block=sketch["block"])
