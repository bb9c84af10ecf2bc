"""The commands of a tuning job: tune, check, register, report, export, serve, searches."""

from pathlib import Path

from ..search import registry
from ..tasks import WORKLOADS
from ..tasks.arguments import address, is_program, named_task, positive
from ..tasks.device import find_device
from ..tasks.network import NETWORKS
from ..tasks.network.models import is_model, model_name
from .progress import Progress


def add_commands(command):
    """Add the commands to a parser; ``command`` as for `arena.add_commands`."""
    sub = command(
        "tune",
        _tune,
        "Run an experiment through nnictl, watch it, and report and export the best kernel.",
        "The web UI and REST API listen on 127.0.0.1 only. Ctrl-C stops the experiment; what was measured stays.",
    )
    sub.add_argument(
        "experiment",
        nargs="?",
        help=f"the experiment's YAML file; or a workload ({', '.join(WORKLOADS)}), a program (module.py:function, or a TVM "
        "module saved as file.json) or a model (model.onnx, a PyTorch model.pt2, a Relax module as program, or "
        f"{', '.join(NETWORKS)}), within the limits of this very machine",
    )
    sub.add_argument(
        "--search",
        choices=registry.SEARCHES,
        help="for a workload (default: OpEvo) or program; for a model inside its tasks (default: WalkGP)",
    )
    sub.add_argument(
        "--selection",
        choices=("saving", "ucb", "gradient", "round-robin"),
        help="for a model: how the task of the next trial is chosen (default: saving)",
    )
    sub.add_argument("--batch", type=positive, help="for a model: its batch, where its file leaves that open (default: 1)")
    sub.add_argument(
        "--warm-start",
        metavar="EXPERIMENT",
        nargs="+",
        default=[],
        help="for a model: further experiments, by id or folder, beside those under runs/ and those that nnictl knows; what they "
        "measured of the same tasks is known from the start",
    )
    sub.add_argument(
        "--fresh", action="store_true", help="for a model: nothing is known of earlier experiments but those of --warm-start"
    )
    sub.add_argument("--resume", metavar="ID", help="go on with this stopped experiment instead")
    sub.add_argument("--trials", type=positive, help="number of trials, instead of the file's maxTrialNumber")
    sub.add_argument("--concurrency", type=positive, help="trials side by side, instead of the file's trialConcurrency")
    sub.add_argument("--port", type=positive, help="port of the web UI (default: the first free one of 8080, 8082, ...)")
    sub.add_argument(
        "--local",
        action="store_true",
        help="without NNI: a workload's trials one after the other in this process; the same command goes on where it stopped",
    )
    sub.add_argument(
        "--output",
        metavar="FOLDER",
        help="where report and kernel go (default: runs/EXPERIMENT_ID, with --local runs/WORKLOAD-SEARCH)",
    )

    sub = command(
        "check", _check, "Check experiment files before they start; the first fault is named, and nothing is started."
    )
    sub.add_argument("experiments", nargs="+", metavar="experiment", help="an experiment's YAML file")

    command("register", _register, "Register every search with NNI (nnictl algo register).")
    sub = command("searches", _searches, "Show the searches, their arguments and defaults.")
    sub.add_argument("--markdown", action="store_true", help="as the README's table")

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
    sub.add_argument(
        "--database",
        metavar="FOLDER",
        help="add the schedules of a program, or of a network's tasks, to the MetaSchedule database there, too",
    )

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


# What a command needs is imported once it runs: the others start without TVM, NumPy or NNI.


def _tune(args):
    if (args.experiment is None) == (args.resume is None):
        raise ValueError("tune: give an experiment file, or --resume with the id of a stopped experiment")
    if is_model(args.experiment):
        return _tune_model(args)
    for option in ("selection", "batch", "warm_start", "fresh"):
        if getattr(args, option):
            raise ValueError(f"--{option.replace('_', '-')}: it is for models, and {args.experiment} is none")
    task, name, search = None, (args.experiment or "").lower(), args.search or "OpEvo"
    if is_program(args.experiment) or name in WORKLOADS:
        args.workload = args.experiment
        task, arguments, name = named_task(args)
    if args.local:
        if task is None:
            raise ValueError(f"--local: name a program (module.py:function) or a workload; allowed: {', '.join(WORKLOADS)}")
        from ..frontends import local

        output = args.output or f"runs/{name}-{search.lower()}"
        return local.tune(task, find_device(), search, {}, args.trials or 512, output, Progress())
    from ..frontends.nni.tune import resume, tune

    if args.resume is not None:
        if args.trials or args.concurrency:
            raise ValueError("tune: --trials and --concurrency are for new experiments")
        return resume(args.resume, Progress(), args.output, args.port)
    path = args.experiment
    if task is not None:
        from ..frontends.nni.experiment import write_folder

        folder = Path("runs") / name
        write_folder(folder, name, arguments, task, [find_device()], searches=[search])
        path = folder / f"{search.lower()}.yml"
    return tune(path, Progress(), args.output, args.trials, args.concurrency, args.port)


def _tune_model(args):
    from ..frontends import local
    from ..frontends.nni.folders import all_records, find_folder
    from ..networks.earlier import first_records, forget, known_records, remember
    from ..networks.prepare import prepare
    from ..study import records

    device, progress = find_device(), Progress()
    folder = Path("runs") / model_name(args.experiment, args.batch)
    network = prepare(args.experiment, folder, device, progress, args.batch)
    class_args = {"inner": args.search or "WalkGP", "selection": args.selection or "saving"}
    if class_args["inner"] == "TaskScheduler":
        raise ValueError("--search: name a search for the inside of tasks; TaskScheduler chooses among them anyhow")
    output = Path(args.output or folder / f"{class_args['inner'].lower()}-{class_args['selection']}")
    sources, others = [find_folder(source) / records.RECORDS for source in args.warm_start], set()
    if args.fresh:
        forget(network)
    else:
        others = {*Path("runs").glob(f"*/*/{records.RECORDS}"), *all_records()} - {output / records.RECORDS}
    known = remember(network, device, [*sources, *sorted(others)])
    if known > (defaults := len(first_records(network, device))):
        without = "" if args.fresh else " (--fresh: without them)"
        progress.say(f"{known - defaults} measurements of its tasks are known from earlier experiments{without}")
    trials = args.trials or 512
    if args.local:
        class_args.update(network.scheduling())
        return local.tune(network, device, "TaskScheduler", class_args, trials, output, progress, known_records(network, device))
    from ..frontends.nni.experiment import write_folder
    from ..frontends.nni.tune import tune

    write_folder(folder, folder.name, "", network, [device], searches=["TaskScheduler"], class_args=class_args)
    return tune(folder / "taskscheduler.yml", progress, args.output, trials, args.concurrency, args.port)


def _check(args):
    from ..frontends.nni.check import check_all

    for path, _ in zip(args.experiments, check_all(args.experiments)):
        print(f"{path}: good")


def _register(args):
    from ..frontends.nni.manager import register

    print(f"registered with NNI: {', '.join(register())}")


def _searches(args):
    if args.markdown:
        print(registry.as_markdown())
        return
    for entry in registry.SEARCHES.values():
        name = entry.name if entry.nni_name == entry.name else f"{entry.name} ({entry.nni_name} in a YAML)"
        print(f"{name}: {entry.summary}{'; takes transfer' if entry.transfers else ''}")
        for argument in entry.arguments:
            paper = f" [paper: {argument.paper}]" if argument.paper else ""
            print(f"    {argument.as_yaml()}  {argument.help}{paper}")


def _report(args):
    from .. import report
    from ..frontends.network import tell
    from ..frontends.nni.folders import find_folder

    folder = find_folder(args.experiment)
    output = Path(args.output or f"{folder.name}.png")
    tell(report.load(folder), output, folder.name, lambda text: print(text, flush=True), args.top)
    print(f"curve written to {output}")


def _export(args):
    from .. import report
    from ..frontends.network import finish
    from ..frontends.nni.folders import find_folder

    folder = find_folder(args.experiment)
    output = Path(args.output or Path("runs") / folder.name)
    finish(report.load(folder), output, Progress(), args.top, args.rounds, args.database)


def _serve(args):
    from ..measure.serve import serve

    serve(args.tracker, args.key, args.host, args.port)
