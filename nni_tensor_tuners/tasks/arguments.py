"""Command-line arguments that several commands and the trial scripts share."""

import argparse
from dataclasses import MISSING, fields, replace
from pathlib import Path

from .workloads import LAYOUTS, OPERATORS, WORKLOADS

# Runs of names that differ in their number alone are told by their first and last.
_NAMED = "mm1..3, bmm1..3, c1, c2, resnet18-c1..c12"
WORKLOAD_HELP = (
    f"a named workload ({_NAMED}), its fields changed by arguments; or an operator ({', '.join(OPERATORS)}) with its shape"
)


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


def _natural(text):
    return _at_least(0, text)


def _at_least(least, text):
    number = int(text)
    if number < least:
        raise argparse.ArgumentTypeError(f"expected an integer >= {least}, got {text}")
    return number


# Field of a workload -> its argument.
SHAPE_ARGUMENTS = {
    "b": {"type": positive, "help": "batch_matmul: number of matrices"},
    "n": {"type": positive, "help": "matmul: rows of X and Z"},
    "k": {"type": positive, "help": "columns of X, rows of Y"},
    "m": {"type": positive, "help": "columns of Y and Z"},
    "layout": {"choices": LAYOUTS, "help": "T where X or Y is stored transposed (default: NN)"},
    "batch": {"type": positive, "help": "conv: number of images"},
    "in_channels": {"type": positive, "help": "channels of an image"},
    "image": {"type": positive, "nargs": "+", "help": "its extents: one to three"},
    "out_channels": {"type": positive, "help": "channels of the output"},
    "kernel": {"type": positive, "nargs": "+", "help": "extents of the kernel; one number stands for all, here and below"},
    "stride": {"type": positive, "nargs": "+", "help": "(default: 1)"},
    "padding": {"type": _natural, "nargs": "+", "help": "zeros added at each end (default: 0)"},
    "dilation": {"type": positive, "nargs": "+", "help": "(default: 1)"},
    "groups": {"type": positive, "help": "as many as channels: depthwise (default: 1)"},
    "transposed": {"action": "store_true", "default": None, "help": "a transposed convolution"},
    "output_padding": {"type": _natural, "nargs": "+", "help": "positions added to a transposed one's output (default: 0)"},
}


def add_shape(parser, operators=OPERATORS):
    """The arguments that give operators their shape."""
    group = parser.add_argument_group("shape")
    taken = {field.name for operator in operators for field in fields(OPERATORS[operator])}
    for name, options in SHAPE_ARGUMENTS.items():
        if name in taken:
            group.add_argument(_option(name), **options)


def workload_of(args, operators=OPERATORS):
    """The workload that arguments name or describe.

    Parameters
    ----------
    args
        With ``workload``: a named workload, an operator, or None for the only one of ``operators`` or the one whose dimensions
        the image has; and what `add_shape` parsed.
    operators
        Those allowed.

    Raises
    ------
    ValueError
        That names the argument.
    """
    shape = {name: _value(getattr(args, name)) for name in SHAPE_ARGUMENTS if getattr(args, name, None) is not None}
    named = WORKLOADS.get((args.workload or "").lower())
    if named is not None and named.operator in operators:
        operator = named.operator
    elif args.workload is None:
        image = shape.get("image", ())
        operator = next((o for o in operators if not o.startswith("conv") or o == f"conv{len(image)}d"), None)
    else:
        operator = args.workload
    if operator not in operators:
        if args.workload is None:
            raise ValueError("name a workload, or give a shape (--image with one to three extents)")
        allowed = ", ".join([*(name for name, w in WORKLOADS.items() if w.operator in operators), *operators])
        raise ValueError(f"unknown operator or workload {args.workload!r}; allowed: {allowed}")
    known = {field.name: field for field in fields(OPERATORS[operator])}
    foreign = [_option(name) for name in shape if name not in known]
    if foreign:
        raise ValueError(f"{operator}: there is no {foreign[0]}; its shape: {', '.join(map(_option, known))}")
    if named is not None:
        workload = replace(named, **shape)
    else:
        missing = [_option(n) for n, field in known.items() if n not in shape and field.default is MISSING]
        if missing:
            raise ValueError(f"{operator}: give {' and '.join(missing)}" + ("" if args.workload else ", or name a workload"))
        workload = OPERATORS[operator](**shape)
    if workload.operator != operator:
        raise ValueError(f"{operator}: --image has {len(workload.image)} extents")
    return workload


def named_workload(args):
    """The workload, the trial script's arguments that name it, and a name for its experiments."""
    workload = workload_of(args)
    name = args.workload.lower()
    plain = name in WORKLOADS
    arguments, label = [name] if plain else [], [name]
    for field in fields(workload):
        value = getattr(workload, field.name)
        extents = value if isinstance(value, tuple) else (value,)
        if value == getattr(WORKLOADS[name], field.name) if plain else all(extent == field.default for extent in extents):
            continue
        arguments += [_option(field.name)] + ([] if value is True else list(map(str, extents)))
        label.append(field.name.replace("_", "") + ("" if value is True else "x".join(map(str, extents)).lower()))
    return workload, " ".join(arguments), "-".join(label)


def trial_scripts(folder=None):
    """The folder of the trial scripts: the one named, that of this checkout, or ``trials`` here."""
    beside = Path(__file__).resolve().parents[1] / "trials"
    return folder or (beside if beside.is_dir() else "trials")


def address(text):
    """An argument's HOST:PORT."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise argparse.ArgumentTypeError(f"expected HOST:PORT with a port of 1 to 65535, got {text!r}")
    return text


def _option(name):
    return f"--{name.replace('_', '-')}"


def _value(given):
    """An argument as a field: a single extent stands for all dimensions."""
    return given if not isinstance(given, list) else tuple(given)
