"""Command-line arguments that several commands and the trial scripts share."""

import argparse
from pathlib import Path

from .workloads import LAYOUTS, OPERATORS, WORKLOADS, Matmul, get_workload

WORKLOAD_HELP = f"a named workload ({', '.join(WORKLOADS)}) or an operator ({', '.join(OPERATORS)}) with its shape"


def add_shape(parser):
    """The arguments that give an operator its shape."""
    for name, meaning in (("n", "rows of X and Z"), ("k", "columns of X, rows of Y"), ("m", "columns of Y and Z")):
        parser.add_argument(f"--{name}", type=positive, help=meaning)
    parser.add_argument("--layout", choices=LAYOUTS, default="NN", help="T where X or Y is stored transposed (default: NN)")


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


def named_workload(args):
    """The workload, the trial script's arguments that name it, and a name for its experiments."""
    if args.workload in WORKLOADS:
        return get_workload(args.workload), args.workload, args.workload
    if args.workload not in OPERATORS:
        allowed = ", ".join([*WORKLOADS, *OPERATORS])
        raise ValueError(f"unknown operator or workload {args.workload!r}; allowed: {allowed}")
    if None in (args.n, args.k, args.m):
        raise ValueError("matmul: give all of --n, --k and --m")
    workload = Matmul(args.n, args.k, args.m, args.layout)
    arguments = f"--n {args.n} --k {args.k} --m {args.m} --layout {args.layout}"
    return workload, arguments, f"matmul-{args.layout.lower()}-{args.n}x{args.k}x{args.m}"


def positive(text):
    """An argument's integer >= 1."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected an integer >= 1, got {text}")
    return number


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
