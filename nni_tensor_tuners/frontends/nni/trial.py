"""One trial: get a configuration from NNI, measure it, write it down, report it."""

import argparse
import importlib
import json
import sys
import time

from . import records
from .arguments import add_rpc, add_shape, is_remote, workload_of
from .device import KINDS, find_device
from .measure import ErrorCode, Limits, measure
from .measure.remote import find_remote_device
from .nni_client import NniClient
from .schedules import SPACES, get_template
from .space import SearchSpace
from .workloads import WORKLOADS, to_dict


def main(description, operators, epilog):
    """A trial script: parse the command line and run one trial of one of ``operators``; returns the process's exit status."""
    named = ", ".join(name for name, workload in WORKLOADS.items() if workload.operator in operators)
    parser = argparse.ArgumentParser(description=description, epilog=epilog)
    parser.add_argument("workload", nargs="?", help=f"a workload of the papers, its fields changed by arguments: {named}")
    add_shape(parser, operators)
    add_arguments(parser)
    args = parser.parse_args()
    try:
        workload = workload_of(args, operators)
    except ValueError as error:
        parser.error(str(error))
    return run(workload, args)


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


def run(workload, args, template=None):
    """Run one trial; returns the process's exit status: 0, 1 if the configuration failed, 2 if there is nothing to run.

    Parameters
    ----------
    workload
        What is tuned.
    args
        What `add_arguments` parsed.
    template
        Name of the template's module, if not the workload's own.
    """
    limits = Limits(build_seconds=args.build_timeout, run_seconds=args.run_timeout)
    try:
        device = _find_device(args)
        module = importlib.import_module(template) if template else get_template(workload, device.kind)
        search_space = module.search_space(workload, args.space == "extended")
        if args.describe:
            print(json.dumps({"kind": device.kind, "device": device.name, "search_space": search_space}))
            return 0
        if args.config is not None:
            SearchSpace.from_json(search_space).point(args.config)  # says what is wrong with it, if anything is
            record = measure(workload, args.config, device, limits, template=template)
            print(json.dumps(record, indent=2))
            return int(record["error_code"] != ErrorCode.NO_ERROR)
        if not NniClient.is_trial():
            raise ValueError("started neither by NNI nor with --config")
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    nni = NniClient()
    record = _measure_once(nni, workload, device, limits, template)
    nni.report_final(metric_of(record, args.metric))
    if record["error_code"] != ErrorCode.NO_ERROR:
        print(f"error {record['error_code']} ({ErrorCode(record['error_code']).name}): {record['error']}", file=sys.stderr)
        return 1
    return 0


def _find_device(args):
    if not is_remote(args):
        return find_device(args.target)
    known = NniClient().experiment_folder / "device.jsonl" if NniClient.is_trial() and args.config is None else None
    return find_remote_device(args.rpc, args.key, args.target, known)


def _measure_once(nni, workload, device, limits, template):
    """Measure this trial's configuration and write it to the experiment's record, unless it is there already."""
    config = nni.parameters()
    path = nni.experiment_folder / records.RECORDS
    earlier = records.read(path)
    known = next((r for r in earlier if r.get("config") == config and "trial_job_id" in r), None)
    # NNI runs trials again that had measured but could not report; those report now. One added by hand is to be measured.
    if known is not None and nni.parameter_id is not None:
        return known
    best = records.best(earlier)
    record = {
        "trial_job_id": nni.trial_job_id,
        "sequence_id": nni.sequence_id,
        "parameter_id": nni.parameter_id,
        "config": config,
        **measure(workload, config, device, limits, best and best["latency_ms"], template),
        "workload": to_dict(workload),
        "device": device.label(),
        "time": time.time(),
    }
    records.append(path, record)
    return record


def metric_of(record, optimised="tflops"):
    """The metric that NNI gets: all numbers, since a None would blank the web UI's page; a failed trial has zeros."""
    numbers = ("tflops", "latency_ms", "spread", "compile_seconds")
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
