"""One trial: get a configuration from NNI, measure it, write it down, report it."""

import argparse
import json
import sys
import time
from dataclasses import asdict

from ...measure import ErrorCode, Limits, measure
from ...measure.lock import only_one
from ...measure.remote import find_remote_device
from ...measure.workers import share_keeper
from ...space import SearchSpace
from ...study import records
from ...tasks import OPERATORS, SPACES, WORKLOADS, from_dict
from ...tasks.arguments import add_rpc, add_shape, is_remote, task_of
from ...tasks.device import KINDS, Device, find_device, wanted
from ..network import of_network
from .client import NniClient

DESCRIPTION = "NNI trial: compile, check and time one configuration of an operator, and report its TFLOPS."
EPILOG = "examples: python3 -m nni_tensor_tuners.trial mm1    python3 -m nni_tensor_tuners.trial matmul --n 512 --k 64 --m 512"


def main(description=DESCRIPTION, operators=tuple(OPERATORS), epilog=EPILOG):
    """A trial script: parse the command line and run one trial of one of ``operators``; returns the process's exit status."""
    named = ", ".join(name for name, task in WORKLOADS.items() if task.operator in operators)
    parser = argparse.ArgumentParser(description=description, epilog=epilog)
    parser.add_argument(
        "workload",
        nargs="?",
        help=f"a named workload ({named}), its fields changed by arguments; or an operator with its shape",
    )
    add_shape(parser, operators)
    add_arguments(parser)
    args = parser.parse_args()
    try:
        task = task_of(args, operators)
    except ValueError as error:
        parser.error(str(error))
    return run(task, args)


def add_arguments(parser):
    """The arguments all trial scripts share, but for the workload's."""
    defaults = Limits()
    parser.add_argument(
        "--target",
        default="auto",
        choices=["auto", *KINDS],
        help="device to run on (default: a GPU if there is one, else the CPU)",
    )
    add_rpc(parser)
    parser.add_argument(
        "--space",
        default="paper",
        choices=SPACES,
        help="the papers' parameters, or more of them where the template has more (default: %(default)s)",
    )
    parser.add_argument(
        "--metric",
        default="tflops",
        choices=["tflops", "latency_ms"],
        help="what NNI optimises; with latency_ms use optimize_mode: minimize (default: %(default)s)",
    )
    parser.add_argument(
        "--build-timeout",
        type=_seconds,
        default=defaults.build_seconds,
        metavar="SECONDS",
        help="limit for compiling (default: %(default)s)",
    )
    parser.add_argument(
        "--run-timeout",
        type=_seconds,
        default=defaults.run_seconds,
        metavar="SECONDS",
        help="limit for checking and timing (default: %(default)s)",
    )
    parser.add_argument(
        "--config", type=_json, metavar="JSON", help="measure this configuration without NNI, and print the result"
    )
    parser.add_argument(
        "--describe", action="store_true", help="print the device and its search space as JSON, and measure nothing"
    )


def run(task, args):
    """Run one trial; returns the process's exit status: 0, 1 if the configuration failed, 2 if there is nothing to run.

    Parameters
    ----------
    task
        What is tuned, a `Task`.
    args
        What `add_arguments` parsed.
    """
    limits = Limits(build_seconds=args.build_timeout, run_seconds=args.run_timeout)
    try:
        device = _find_device(args)
        if args.describe:
            search_space = task.search_space(device, args.space == "extended")
            print(json.dumps({"kind": device.kind, "device": device.name, "search_space": search_space}))
            return 0
        if args.config is not None:
            SearchSpace.from_json(task.search_space(device, args.space == "extended")).point(
                args.config
            )  # says what is wrong with it, if anything is
            record = measure(*task.part(args.config), device, limits, cold=task.cold)
            print(json.dumps(record, indent=2))
            return int(record["error_code"] != ErrorCode.NO_ERROR)
        if not NniClient.is_trial():
            raise ValueError("started neither by NNI nor with --config")
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    nni = NniClient()
    share_keeper(str(nni.experiment_folder))
    record = _measure_once(nni, task, device, limits)
    nni.report_final(metric_of(record, "estimate_ms" if "estimate_ms" in record else args.metric))
    if record["error_code"] != ErrorCode.NO_ERROR:
        print(f"error {record['error_code']} ({ErrorCode(record['error_code']).name}): {record['error']}", file=sys.stderr)
        return 1
    return 0


def _find_device(args):
    if not is_remote(args):
        return find_device(args.target)
    if not NniClient.is_trial() or args.config is not None:
        return find_remote_device(args.rpc, args.key, args.target)
    # Only the first trial of an experiment has to ask the servers what they are.
    known = NniClient().experiment_folder / "device.jsonl"
    asked = {"rpc": args.rpc, "key": args.key, "target": wanted(args.target)}
    with only_one(known):
        for record in records.read(known):
            if record.get("asked") == asked:
                return Device(**record["device"])
        device = find_remote_device(args.rpc, args.key, args.target)
        records.append(known, {"asked": asked, "device": asdict(device)})
        return device


def _measure_once(nni, task, device, limits):
    """Measure this trial's configuration and write it to the experiment's record, unless it is there already."""
    config = nni.parameters()
    path = nni.experiment_folder / records.RECORDS
    kernel, own_config = task.part(config)
    recorded = records.read(path)
    earlier = [record for record in recorded if _is_of(record, kernel)]
    known = next((r for r in earlier if r.get("config") == config and "trial_job_id" in r), None)
    # NNI runs trials again that had measured but could not report; those report now. One added by hand is to be measured.
    if known is not None and nni.parameter_id is not None:
        return known
    best = records.best(record for record in earlier if record.get("device") == device.label())
    record = {
        "trial_job_id": nni.trial_job_id,
        "sequence_id": nni.sequence_id,
        "parameter_id": nni.parameter_id,
        "task": kernel.id,
        "config": config,
        **measure(kernel, own_config, device, limits, best and best["latency_ms"], cold=task.cold),
        "workload": kernel.to_dict(),
        "device": device.label(),
        "time": time.time(),
    }
    record.update(of_network(task, device, recorded, record))
    records.append(path, record)
    return record


def _is_of(record, task):
    """Whether a record is of a task; those of earlier versions have its fields, but no task id."""
    if "task" in record or "workload" not in record:
        return record.get("task") == task.id
    try:
        return from_dict(record["workload"]).id == task.id
    except ValueError:
        return False


def metric_of(record, optimised="tflops"):
    """The metric that NNI gets: all numbers, since a None would blank the web UI's page; a failed trial has zeros."""
    numbers = ("tflops", "latency_ms", "spread", "compile_seconds", *(["estimate_ms"] if "estimate_ms" in record else ()))
    metric = {name: float(record.get(name, 0.0)) for name in numbers}
    return {"default": metric[optimised], **metric, "error_code": record["error_code"]}


def _json(text):
    try:
        return json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"expected a configuration as JSON ({error})") from None


def _seconds(text):
    seconds = float(text)
    if not seconds > 0:
        raise argparse.ArgumentTypeError(f"expected seconds > 0, got {text}")
    return seconds
