"""One command of ``tensor-tuners``, from its arguments to its exit status."""

import argparse
import os
import sys

from .. import __version__
from . import arena, experiments, papers, space


def main(argv=None):
    """Run one command; returns the exit status: 0, 1 (it failed, one line on standard error says why), 2 (bad usage).

    As a shell has it, it is 130 after Ctrl-C, and 141 when nobody reads any more what is printed.
    """
    args = parser().parse_args(argv)
    try:
        status = args.run(args) or 0
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # whoever read what is printed, `head` say, has what it wanted
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes it once more
        return 141
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def parser():
    """Of the command and all of its own commands."""
    whole = argparse.ArgumentParser(
        prog="tensor-tuners",
        description="Auto-tune tensor operators with topology-aware searches, on NNI and TVM.",
        epilog="Start with:  tensor-tuners tune mm1 --trials 64",
    )
    whole.add_argument("--version", action="version", version=__version__)
    commands = whole.add_subparsers(required=True, metavar="COMMAND")

    def command(name, run, summary, epilog=None, **more):
        sub = commands.add_parser(name, help=summary, description=summary, epilog=epilog, **more)
        sub.set_defaults(run=run, command=name)
        return sub

    experiments.add_commands(command)
    space.add_commands(command)
    arena.add_commands(command)
    papers.add_commands(command)
    return whole
