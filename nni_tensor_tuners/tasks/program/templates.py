"""Our templates as sketches of a program that is one of our operators. TVM is imported inside functions only."""

import random
import re
from dataclasses import replace

from ...space import SearchSpace
from ..matmul import OPERATORS, cpu, dot
from ..matmul.recognise import recognise
from ..target import target_of


def of_program(module, device, prefix):
    """The sketches (`sketches`) that our templates are of a program on a device: one, or none.

    Such a sketch has, in place of a trace, ``task``, the operator as plain data, and ``block``, which computes it in the program;
    ``constraints`` of its own, with ``prefix`` before the names of its parameters, and, where a rule knows one, ``sound``, a
    configuration. That of bytes (`matmul.dot`) has ``of_bytes``, the type of X.
    """
    found = recognise(module)
    if found is None:
        return []
    task, block, types = found
    of_bytes = device.kind == "cpu" and dot.fits(types, task.k, task.m, task.layout, target_of(device))
    if of_bytes:
        task = replace(task, k=task.k // dot.STEPS)
        bounds, sound = cpu.constraints(task, device, columns=dot.COLUMNS), cpu.sound(task, device, columns=dot.COLUMNS)
    elif set(types) == {"float32"}:
        bounds, sound = task.constraints(device, extended=True), task.sound(device)
    else:
        return []
    specs = task.search_space(device, extended=True)
    names = re.compile(rf"\b({'|'.join(specs)})\b")
    sketch = {
        "name": f"template of {task.operator}{' of bytes' if of_bytes else ''}",
        "task": task.to_dict(),
        "block": block,
        **({"of_bytes": types[0]} if of_bytes else {}),
        "parameters": {name: {"spec": spec} for name, spec in specs.items()},
        "constraints": [names.sub(rf"{prefix}\1", text) for text in bounds],
        **({"sound": sound} if sound else {}),
    }
    space = SearchSpace.from_json(specs, bounds)
    try:
        schedule(module, sketch, space.sample(random.Random(0)), device)
    except Exception:  # TVM's ScheduleError, which is no ValueError: what comes after the block does not fit the template
        return []
    return [sketch]


def schedule(module, sketch, config, device):
    """The ``s_tir.Schedule`` of a program by a template; ``config`` has the template's parameters."""
    fields = dict(sketch["task"])
    task = OPERATORS[fields.pop("operator")](**fields)
    about = {name: sketch[name] for name in ("block", "of_bytes") if name in sketch}
    return task.schedule(config, device, program=module, **about)
