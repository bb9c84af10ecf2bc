"""The command ``space``: what can be searched, and what a device allows of it."""

import json

from ..tasks import SPACES
from ..tasks.arguments import WORKLOAD_HELP, add_rpc, add_shape, is_remote, named_task
from ..tasks.device import GENERIC, KINDS, find_device
from ..tasks.network.models import is_model, model_name
from .progress import Progress


def add_commands(command):
    """Add the command to a parser; ``command`` as for `arena.add_commands`."""
    sub = command(
        "space",
        _space,
        "Write the search space and the constraints of a workload.",
        "examples: tensor-tuners space mm1 --target cuda      tensor-tuners space matmul --n 64 --k 64 --m 64 --output experiments/mine",
    )
    sub.add_argument("workload", help=WORKLOAD_HELP)
    sub.add_argument("source", nargs="?", help="after the word program: module.py:function, or a file.json")
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
        "--analyse",
        action="store_true",
        help="print a nested choice's branches, how much of the space satisfies each constraint, and all of them",
    )
    add_rpc(sub)
    sub.add_argument("--output", metavar="FOLDER", help="write search_space.json and one experiment YAML per search there")
    sub.add_argument(
        "--trials",
        metavar="FOLDER",
        help="for --output: a folder of trial scripts for the experiments to name (default: they run nni_tensor_tuners.trial)",
    )


def _space(args):
    from ..frontends.nni import experiment

    if args.source is not None:
        if args.workload != "program":
            raise ValueError(f"{args.source}: only the word program takes another one after it")
        args.workload = args.source
    if is_model(args.workload):
        return _space_of_model(args)
    task, arguments, name = named_task(args)
    extended = args.space == "extended"
    if is_remote(args):
        from ..measure.remote import find_remote_device

        devices = [find_remote_device(args.rpc, args.key, "auto" if args.target == "all" else args.target)]
        arguments += f" --rpc {args.rpc} --key {args.key}"
    else:
        devices = list(GENERIC.values()) if args.target == "all" else [_device_or_generic(args.target)]
    if args.output:
        for path in experiment.write_folder(args.output, name, arguments, task, devices, args.trials, extended):
            print(path)
        return
    described = experiment.describe(task, devices, extended)
    if args.analyse:
        for kind, constraints in described["constraints"].items():
            _analyse(f"{name} on {kind}", described["search_space"], constraints)
        return
    if len(devices) == 1:
        described["constraints"] = described["constraints"][devices[0].kind]
    print(json.dumps(described, indent=2))


def _analyse(title, search_space, constraints):
    from ..space import SearchSpace, nested
    from ..space.analysis import analyse

    progress = Progress()
    found = analyse(
        SearchSpace.from_json(search_space, constraints),
        progress=lambda done, total: progress.show(f"{title}: {total - done:,} configurations left"),
    )
    total = found["looked_at"]

    def share(count):
        part = count / total
        return f"{part:8.3%}" + ("" if found["exact"] else f" +- {(part * (1 - part) / total) ** 0.5:.3%}")

    how = "all counted" if found["exact"] else f"{total:,} of them drawn at random"
    progress.say(f"{title}: {found['size']:,} configurations ({how})")
    for name, spec in search_space.items():
        if nested.is_nested(spec):
            progress.say(f"  {name}, one of {len(spec['_value'])}:")
            for branch in spec["_value"]:
                own = {key: each for key, each in branch.items() if key != nested.NAME}
                progress.say(f"  {SearchSpace.from_json(own).size if own else 1:>24,}  {branch[nested.NAME]}")
    for text, count in found["constraints"].items():
        progress.say(f"  {share(count)}  {text}")
    progress.say(f"  {share(found['legal'])}  all of these; {1 - found['legal'] / total:.1%} of the space is not worth a trial")


def _space_of_model(args):
    from ..frontends.nni.experiment import write_folder
    from ..networks.prepare import prepare

    if not args.output:
        raise ValueError(f"{args.workload}: a model's tasks are measured first; give --output, a folder for them")
    if is_remote(args):
        raise ValueError(f"{args.workload}: models are tuned on this machine's devices, not through --rpc")
    device = find_device("auto" if args.target == "all" else args.target)
    network = prepare(args.workload, args.output, device, Progress())
    for path in write_folder(args.output, model_name(args.workload), "", network, [device]):
        print(path)


def _device_or_generic(target):
    """This machine's device where it has one, for writing a space needs none."""
    try:
        return find_device(target)
    except ValueError:
        if target not in GENERIC:
            raise
        return GENERIC[target]
