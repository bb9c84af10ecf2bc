"""Command-line arguments that name a task and a device, which several commands and the trials share.

An operator's arguments are the fields of its class, as `task.shape_field` describes them.
"""

import argparse
import functools
import re
import shlex
from dataclasses import MISSING, fields, replace

from .program import PROGRAMS, parse
from .registry import OPERATORS, WORKLOADS, operator_of


def add_rpc(parser):
    """The arguments that name a device behind a TVM RPC tracker."""
    parser.add_argument(
        "--rpc", type=address, metavar="HOST:PORT", help="compile here, check and time on a server of this TVM RPC tracker"
    )
    parser.add_argument("--key", help="the key under which the tracker knows the servers; with --rpc")


def is_remote(args):
    """Whether `add_rpc`'s arguments name a device; ValueError if they do by half."""
    if (args.rpc is None) != (args.key is None):
        raise ValueError("--rpc and --key: give both, or neither")
    return args.rpc is not None


def positive(text):
    """An argument's integer >= 1."""
    return _at_least(1, text)


def duration(text):
    """An argument's minutes > 0."""
    minutes = float(text)
    if not 0 < minutes < float("inf"):
        raise argparse.ArgumentTypeError(f"expected minutes > 0, got {text}")
    return minutes


def _at_least(least, text):
    number = int(text)
    if number < least:
        raise argparse.ArgumentTypeError(f"expected an integer >= {least}, got {text}")
    return number


def address(text):
    """An argument's HOST:PORT."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise argparse.ArgumentTypeError(f"expected HOST:PORT with a port of 1 to 65535, got {text!r}")
    return text


def add_shape(parser, operators=tuple(OPERATORS)):
    """The arguments that give operators (by their names) their shape. Fields of one name share an argument."""
    group = parser.add_argument_group("shape")
    described = {}
    for operator in dict.fromkeys(map(operator_of, operators)):
        for field in fields(operator):
            described.setdefault(field.name, []).append(field)
    for name, alike in described.items():
        texts = dict.fromkeys(field.metadata.get("help", "") for field in alike)
        group.add_argument(_option(name), **_options(alike), help="; ".join(filter(None, texts)).replace("%", "%%"))


def _options(alike):
    """What argparse needs to know of fields of one name; what they allow together, as each class checks its own."""
    if alike[0].type is bool:
        return {"action": "store_true", "default": None}
    choices = [choice for field in alike for choice in field.metadata.get("choices") or ()]
    if choices:
        return {"choices": list(dict.fromkeys(choices))}
    if alike[0].type is str:
        return {}
    least = min(field.metadata.get("least", 1) for field in alike)
    return {"type": integer_from(least), **({"nargs": "+"} if any(field.type is tuple for field in alike) else {})}


def integer_from(least):
    """A type for argparse: integers that are no less."""
    parse = functools.partial(_at_least, least)
    parse.__name__ = "integer"  # argparse says it of text that is no number
    return parse


def task_of(args, operators=tuple(OPERATORS)):
    """The task that arguments name or describe.

    Parameters
    ----------
    args
        With ``workload``: a named workload, an operator, or None for what the shape says, if ``operators`` are all of one
        class; and what `add_shape` parsed.
    operators
        Names of those allowed.

    Raises
    ------
    ValueError
        That names the argument.
    """
    if is_program(args.workload) and "program" in operators:
        return OPERATORS["program"](args.workload)
    named = WORKLOADS.get((args.workload or "").lower())
    if named is not None and named.operator in operators:
        operator, classes = named.operator, {type(named)}
    elif args.workload is None:
        operator, classes = " or ".join(operators), set(map(operator_of, operators))
        if len(classes) > 1:
            raise ValueError("name a workload or an operator")
    elif args.workload in operators:
        operator, classes = args.workload, {operator_of(args.workload)}
    else:
        allowed = ", ".join([*(name for name, task in WORKLOADS.items() if task.operator in operators), *operators])
        raise ValueError(f"unknown operator or workload {args.workload!r}; allowed: {allowed}")
    (of,) = classes
    shape = {name: tuple(value) if isinstance(value, list) else value for name, value in _given(args, operators).items()}
    known = {field.name: field for field in fields(of)}
    foreign = [_option(name) for name in shape if name not in known]
    if foreign:
        raise ValueError(f"{operator}: there is no {foreign[0]}; its shape: {', '.join(map(_option, known))}")
    if named is not None:
        task = replace(named, **shape)
    else:
        missing = [_option(n) for n, field in known.items() if n not in shape and field.default is MISSING]
        if missing:
            raise ValueError(f"{operator}: give {' and '.join(missing)}" + ("" if args.workload else ", or name a workload"))
        task = of(**shape)
    if args.workload is not None and task.operator != operator:
        raise ValueError(f"{operator}: of this shape it is {task.operator}")
    return task


def is_program(text):
    """Whether an argument names a program, as `program.load` reads it, and no operator or workload of ours."""
    if text is None or text.lower() in (*WORKLOADS, *OPERATORS):
        return False
    return text.endswith(".json") or parse(text) is not None


def named_task(args):
    """The task that arguments name, the arguments of a trial that name it, and a name for its experiments.

    The trial's are those of ``python -m nni_tensor_tuners.trial``, such as "mm1 --n 256" or "matmul --n 64 --k 64 --m 64".
    """
    task = task_of(args)
    if is_program(args.workload):
        stem = args.workload.removesuffix(".json").rpartition("/")[2].rpartition(":")[2]
        stem = re.sub(r"\W+", "-", stem).strip("-")
        return task, f"program --path {shlex.quote(task.path)}", stem
    name = args.workload.lower()
    arguments, label, named = [name], [name], WORKLOADS.get(name)
    for field in fields(task):
        value = getattr(task, field.name)
        extents = value if isinstance(value, tuple) else (value,)
        if value == getattr(named, field.name) if named is not None else all(extent == field.default for extent in extents):
            continue
        arguments += [_option(field.name)] + ([] if value is True else list(map(str, extents)))
        label.append(field.name.replace("_", "") + ("" if value is True else "x".join(map(str, extents)).lower()))
    return task, " ".join(arguments), "-".join(label)


def _given(args, operators):
    """Field name -> value of the shape's arguments that were given."""
    names = {field.name for operator in operators for field in fields(operator_of(operator))}
    names |= {field.name for operator in OPERATORS.values() for field in fields(operator)}
    return {name: getattr(args, name) for name in sorted(names) if getattr(args, name, None) is not None}


def _option(name):
    return f"--{name.replace('_', '-')}"


def _runs(names):
    """Names as a list to read, runs that differ in their number alone by their first and last: "mm1..3, c1, c2"."""
    runs = []
    for name in names:
        stem, number = re.fullmatch(r"(.*?)(\d*)", name).groups()
        if runs and number and runs[-1][0] == stem and runs[-1][-1] and int(number) == int(runs[-1][-1]) + 1:
            runs[-1].append(number)
        else:
            runs.append([stem, number])
    return ", ".join(
        f"{stem}{first}..{rest[-1]}" if len(rest) > 1 else ", ".join(stem + number for number in (first, *rest))
        for stem, first, *rest in runs
    )


WORKLOAD_HELP = (
    f"a named workload ({_runs(WORKLOADS)}), its fields changed by arguments; "
    f"an operator ({', '.join(OPERATORS)}) with its shape; or a program: module.py:function, a saved module.json, or "
    f'one of the papers ({", ".join(PROGRAMS)}); in quotes with its arguments, "c1d(batch=16)"'
)
