"""The command ``tensor-tuners``."""

import argparse
import json
import os
import sys
from pathlib import Path

from . import __version__, cli_arena
from .arguments import WORKLOAD_HELP, add_rpc, add_shape, address, is_remote, named_workload, positive, trial_scripts
from .device import GENERIC, KINDS, find_device
from .schedules import SPACES
from .workloads import WORKLOADS, get_workload


def main(argv=None):
    """Run one command; returns the exit status: 0, 1 (it failed, one line on standard error says why), 2 (bad usage).

    As a shell has it, it is 130 after Ctrl-C, and 141 when nobody reads any more what is printed.
    """
    args = _parser().parse_args(argv)
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


def _space(args):
    from . import experiment

    workload, arguments, name = named_workload(args)
    extended = args.space == "extended"
    if is_remote(args):
        from .measure.remote import find_remote_device

        devices = [find_remote_device(args.rpc, args.key, "auto" if args.target == "all" else args.target)]
        arguments += f" --rpc {args.rpc} --key {args.key}"
    else:
        devices = list(GENERIC.values()) if args.target == "all" else [_device_or_generic(args.target)]
    if args.output:
        for path in experiment.write_folder(args.output, name, arguments, workload, devices, args.trials, extended):
            print(path)
        return
    described = experiment.describe(workload, devices, extended)
    if args.analyse:
        for kind, constraints in described["constraints"].items():
            _analyse(f"{name} on {kind}", described["search_space"], constraints)
        return
    if len(devices) == 1:
        described["constraints"] = described["constraints"][devices[0].kind]
    print(json.dumps(described, indent=2))


def _analyse(title, search_space, constraints):
    from .space import SearchSpace
    from .space.analysis import analyse
    from .tune import Progress

    progress = Progress()
    found = analyse(
        SearchSpace.from_json(search_space, constraints),
        progress=lambda done, total: progress.show(f"{title}: {done:,} of {total:,} configurations"),
    )
    total = found["looked_at"]

    def share(count):
        part = count / total
        return f"{part:8.3%}" + ("" if found["exact"] else f" +- {(part * (1 - part) / total) ** 0.5:.3%}")

    how = "all counted" if found["exact"] else f"{total:,} of them drawn at random"
    progress.say(f"{title}: {found['size']:,} configurations ({how})")
    for text, count in found["constraints"].items():
        progress.say(f"  {share(count)}  {text}")
    progress.say(f"  {share(found['legal'])}  all of these; {1 - found['legal'] / total:.1%} of the space is not worth a trial")


def _check(args):
    from . import experiment

    for path in args.experiments:
        experiment.check(path)
        print(f"{path}: good")


def _register(args):
    from .manager import register

    print(f"registered with NNI: {', '.join(register())}")


def _report(args):
    from . import experiment, report

    folder = experiment.find_folder(args.experiment)
    found = report.load(folder)
    print(report.summary(found))
    print(report.table(found, args.top))
    for failure in report.failures(found):
        print(failure)
    output = Path(args.output or f"{folder.name}.png")
    report.plot(found, output, folder.name)
    print(f"curve written to {output}")


def _export(args):
    from . import experiment, report
    from .tune import Progress, finish_export

    folder = experiment.find_folder(args.experiment)
    output = Path(args.output or Path("runs") / folder.name)
    finish_export(report.load(folder), output, Progress(), args.top, args.rounds)


def _tune(args):
    from .experiment import write_folder
    from .tune import resume, tune

    if (args.experiment is None) == (args.resume is None):
        raise ValueError("tune: give an experiment file, or --resume with the id of a stopped experiment")
    if args.resume is not None:
        if args.trials or args.concurrency:
            raise ValueError("tune: --trials and --concurrency are for new experiments")
        return resume(args.resume, args.output, args.port)
    path = args.experiment
    if path.lower() in WORKLOADS:
        path = path.lower()
        folder = Path("runs") / path
        write_folder(folder, path, path, get_workload(path), [find_device()], trial_scripts())
        path = folder / "opevo.yml"
    return tune(path, args.output, args.trials, args.concurrency, args.port)


def _serve(args):
    from .serve import serve

    serve(args.tracker, args.key, args.host, args.port)


def _device_or_generic(target):
    """This machine's device where it has one, for writing a space needs none."""
    try:
        return find_device(target)
    except ValueError:
        if target not in GENERIC:
            raise
        return GENERIC[target]


def _parser():
    parser = argparse.ArgumentParser(
        prog="tensor-tuners",
        description="Auto-tune tensor operators with topology-aware searches, on NNI and TVM.",
        epilog="Start with:  tensor-tuners tune mm1 --trials 64",
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name, run, summary, epilog=None):
        sub = commands.add_parser(name, help=summary, description=summary, epilog=epilog)
        sub.set_defaults(run=run, command=name)
        return sub

    sub = command(
        "tune",
        _tune,
        "Run an experiment through nnictl, watch it, and report and export the best kernel.",
        "The web UI and REST API listen on 127.0.0.1 only. Ctrl-C stops the experiment; what was measured stays.",
    )
    sub.add_argument(
        "experiment",
        nargs="?",
        help=f"the experiment's YAML file; or a workload ({', '.join(WORKLOADS)}), for OpEvo within the limits of this very machine",
    )
    sub.add_argument("--resume", metavar="ID", help="go on with this stopped experiment instead")
    sub.add_argument("--trials", type=positive, help="number of trials, instead of the file's maxTrialNumber")
    sub.add_argument("--concurrency", type=positive, help="trials side by side, instead of the file's trialConcurrency")
    sub.add_argument("--port", type=positive, help="port of the web UI (default: the first free one of 8080, 8082, ...)")
    sub.add_argument("--output", metavar="FOLDER", help="where report and kernel go (default: runs/EXPERIMENT_ID)")

    sub = command(
        "space",
        _space,
        "Write the search space and the constraints of a workload.",
        "examples: tensor-tuners space mm1 --target cuda      tensor-tuners space matmul --n 64 --k 64 --m 64 --output experiments/mine",
    )
    sub.add_argument("workload", help=WORKLOAD_HELP)
    add_shape(sub)
    sub.add_argument(
        "--target",
        choices=["all", "auto", *KINDS],
        default="all",
        help="the device whose limits the constraints state: this machine's if it has one; all states those of any device, by kind (default: all)",
    )
    sub.add_argument(
        "--space",
        choices=SPACES,
        default="paper",
        help="the papers' parameters, or more of them where the template has more (default: paper)",
    )
    sub.add_argument(
        "--analyse", action="store_true", help="print how much of the space satisfies each constraint, and all of them"
    )
    add_rpc(sub)
    sub.add_argument("--output", metavar="FOLDER", help="write search_space.json and one experiment YAML per search there")
    sub.add_argument("--trials", metavar="FOLDER", default="trials", help="the trial scripts, for --output (default: trials)")

    sub = command(
        "check", _check, "Check experiment files before they start; the first fault is named, and nothing is started."
    )
    sub.add_argument("experiments", nargs="+", metavar="experiment", help="an experiment's YAML file")

    command("register", _register, "Register every search with NNI (nnictl algo register).")

    which = "an experiment's id or folder, running or finished (default: the latest)"
    sub = command("report", _report, "Show the best configurations of an experiment, and plot the best so far.")
    sub.add_argument("experiment", nargs="?", help=which)
    sub.add_argument("--top", type=positive, default=10, help="configurations to show (default: 10)")
    sub.add_argument("--output", metavar="PNG", help="where the curve goes (default: EXPERIMENT_ID.png)")

    sub = command(
        "export",
        _export,
        "Time the best few configurations again, interleaved, in fresh processes, and write the winner's kernel.",
    )
    sub.add_argument("experiment", nargs="?", help=which)
    sub.add_argument("--top", type=positive, default=4, help="configurations to time again (default: 4)")
    sub.add_argument("--rounds", type=positive, default=3, help="times each is timed (default: 3)")
    sub.add_argument("--output", metavar="FOLDER", help="where the kernel goes (default: runs/EXPERIMENT_ID)")

    sub = command(
        "serve",
        _serve,
        "Serve this machine's devices to trials with --rpc and --key, through a TVM RPC tracker.",
        "Whoever reaches tracker or server can run any code on this machine: trusted networks only. "
        "The tracker: python3 -m tvm.exec.rpc_tracker --host 127.0.0.1 --port 9190",
    )
    sub.add_argument("tracker", type=address, metavar="HOST:PORT", help="the tracker")
    sub.add_argument("--key", required=True, help="what trials ask the tracker for; the same for devices that are alike")
    sub.add_argument(
        "--host",
        default="127.0.0.1",
        help="address to listen on (default: %(default)s, reached from this machine only; 0.0.0.0: from everywhere)",
    )
    sub.add_argument(
        "--port", type=positive, default=9090, help="listen on the first free port from here (default: %(default)s)"
    )

    cli_arena.add_commands(command)
    return parser
