"""Whole networks on this machine: ours beside MetaSchedule's tune_relax at equal trials, and beside onnxruntime.

usage: networks.py [NETWORK ...] [--trials 200] [--searches WalkGP ...] [--seed 0] [--rounds 7] [--output runs/networks]
                   [--peers tuned-alike as-it-comes]

tune_relax is given the network as it comes, or (tuned-alike) as our `lower` lays it out, channels last and weights packed. Ours
counts the measurements of default schedules among its trials. tune_relax has its own search, runner, gradient and cost model,
which learns from the first round on; rounds of 8, so that 200 trials are enough for each of some twenty tasks to have one; and
a builder of ours, whose processes stay from round to round. Tasks that it has not come to run their outermost loops in parallel.
What each has found is compiled and timed in turns, in fresh processes, answers compared. An interrupted comparison goes on.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from statistics import geometric_mean, median

import numpy as np
from onnx_of import to_onnx
from peak import peak

from nni_tensor_tuners.cli.progress import Progress
from nni_tensor_tuners.frontends.local import LocalStudy
from nni_tensor_tuners.networks import runner
from nni_tensor_tuners.networks.earlier import first_records
from nni_tensor_tuners.networks.finish import winners
from nni_tensor_tuners.networks.prepare import lowered, prepare
from nni_tensor_tuners.study import records
from nni_tensor_tuners.tasks.device import find_device, usable_cores
from nni_tensor_tuners.tasks.network import lower, models
from nni_tensor_tuners.tasks.network.models import model_name
from nni_tensor_tuners.tasks.target import target_of

NETWORKS = ["resnet18", "mobilenet-v2", "bert-4", "alexnet"]
PEERS = ["tuned-alike", "as-it-comes"]
ROUND = 8
PATIENCE = 90  # seconds: a fresh worker imports for ten


def ours(name, search, seed, trials, folder):
    """Tune a network; its record, all latencies known, and the seconds from start to end, kept in the folder."""
    done = folder / "seconds.json"
    start = time.perf_counter()
    network = prepare(name, folder, find_device("cpu"), Progress())
    known = first_records(network, find_device("cpu"))
    class_args = {"inner": search, **network.scheduling()}
    path, tags = folder / records.RECORDS, {"search": search}
    study = LocalStudy(network, find_device("cpu"), "TaskScheduler", seed, class_args, path, tags, known=known)
    found = list(study.run(max(trials - len(known), 0)))
    if not done.is_file():
        done.write_text(json.dumps(time.perf_counter() - start))
    return network, [*known, *found], json.loads(done.read_text())


def tune_relax(name, peer, seed, trials, folder):
    """MetaSchedule's, in this process; the folder keeps its database."""
    from tvm.s_tir import meta_schedule as ms

    from nni_tensor_tuners.frontends.metaschedule import builder
    from nni_tensor_tuners.tasks.program.sketches import read_tensor_instructions

    target = target_of(find_device("cpu"))
    read_tensor_instructions()
    ms.relax_integration.tune_relax(
        module_for(name, peer),
        {},
        target,
        str(folder),
        max_trials_global=trials,
        num_trials_per_iter=ROUND,
        builder=builder(PATIENCE),
        cost_model=ms.cost_model.XGBModel(num_warmup_samples=ROUND),
        seed=seed + 1,
    )


def module_for(name, peer):
    """The module that tune_relax is given: its operators are programs already, as it wants them."""
    from tvm import relax

    if peer == PEERS[0]:
        return lowered(name, None, find_device("cpu"))
    with target_of(find_device("cpu")):
        return relax.get_pipeline("zero")(models.read(name))


def run_tune_relax(name, peer, seed, trials, folder):
    """Run tune_relax in a process of its own; returns the seconds that it took."""
    done = folder / "seconds.json"
    if not done.is_file():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        command = [sys.executable, __file__, "--tune-relax", name, peer, str(seed), str(trials), str(folder)]
        start = time.perf_counter()
        with open(folder / "log.txt", "w", encoding="utf-8") as log:
            if code := subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=False).returncode:
                raise SystemExit(f"error: tune_relax on {name} ended with {code}, see {folder}/log.txt")
        done.write_text(json.dumps(time.perf_counter() - start))
    return json.loads(done.read_text())


def schedules_of(folder):
    """(module, schedule) of the best record of each task in a MetaSchedule database."""
    from tvm import s_tir
    from tvm.s_tir import meta_schedule as ms
    from tvm_ffi import structural_hash

    best = {}
    for record in ms.database.JSONDatabase(work_dir=str(folder)).get_all_tuning_records():
        seconds = [float(each) for each in record.run_secs or ()]
        latency, key = sum(seconds) / len(seconds) if seconds else 1e10, structural_hash(record.workload.mod)
        if latency < best.get(key, (1e9, None))[0]:
            best[key] = latency, record
    found = []
    for _, record in best.values():
        schedule = s_tir.Schedule(record.workload.mod, error_render_level="fast")
        record.trace.apply_to_schedule(schedule, remove_postproc=False)
        found.append((record.workload.mod, schedule))
    return found


def build(module, schedules, path):
    lower.build(module, schedules, find_device("cpu")).export_library(str(path))
    return path


def of_network(network, found):
    """(module, schedule) of the best record of each task."""
    best = winners(network, found, find_device("cpu"), rounds=2)
    return [(network.tasks[name].source, network.tasks[name].schedule(config, find_device("cpu"))) for name, config, _ in best]


def compare(args):
    print(f"{find_device('cpu').name}, {usable_cores()} cores, at most {peak():.0f} GFLOPS (peak.py)")
    print(f"{args.trials} trials; ms, medians of {args.rounds} turns", flush=True)
    ratios = {}
    for name in args.networks:
        built, seconds = {}, {}
        for search in args.searches:
            folder = args.output / f"{name}-{search}-{args.seed}"
            network, found, seconds[search] = ours(name, search, args.seed, args.trials, folder)
            module = lowered(name, None, find_device("cpu"), network.description["winograd"])
            built[search] = build(module, of_network(network, found), folder / "model.so")
        defaults = first_records(network, find_device("cpu"))
        seconds["default schedules"] = None
        built["default schedules"] = build(module, of_network(network, defaults), folder / "default.so")
        for peer in args.peers:
            folder = args.output / f"{name}-{peer}-{args.seed}"
            variant = f"tune_relax {peer}"
            seconds[variant] = run_tune_relax(name, peer, args.seed, args.trials, folder)
            built[variant] = build(module_for(name, peer), schedules_of(folder), folder / "model.so")
        seconds["onnxruntime"] = None
        built["onnxruntime"] = to_onnx(name, None, args.output / f"{name}.onnx")
        timed, differences = timed_in_turns(name, built, args.rounds, args.output)
        print(f"\n{name:<26}{'ms':>10}{'seconds':>10}{'difference':>12}")
        for variant, milliseconds in timed.items():
            spent = f"{seconds[variant]:.0f}" if seconds[variant] else ""
            print(f"{variant:<26}{milliseconds:10.3f}{spent:>10}{differences[variant]:12.1e}", flush=True)
        for variant in [each for each in timed if each != args.searches[0]]:
            ratios.setdefault(variant, []).append(timed[variant] / timed[args.searches[0]])
    print(f"\n{args.searches[0]} is faster by a factor of (geometric mean, least)")
    for variant, each in ratios.items():
        print(f"{variant:<26}{geometric_mean(each):8.2f}{min(each):8.2f}")


def timed_in_turns(name, built, rounds, folder, programs=None):
    """Latency in ms of each variant, and how much its answer differs from the last one's, relative to the largest number.

    ``programs`` are those that run variants, where that is not `networks.runner`.
    """
    model = models.read(name)
    rng, shapes = np.random.default_rng(0), [[int(extent) for extent in each.ty.shape] for each in model["main"].params]
    inputs = folder / f"{model_name(name)}-inputs.npz"
    np.savez(inputs, **{str(place): rng.uniform(-1, 1, shape).astype("float32") for place, shape in enumerate(shapes)})
    times, answers = {variant: [] for variant in built}, {}
    for turn in range(rounds):
        for variant, path in (list(built.items()) if turn % 2 else list(built.items())[::-1]):
            output = folder / "outputs.npz"
            program = (programs or {}).get(variant, runner.PROGRAM)
            times[variant].append(runner.run(path, inputs, output, program=program))
            with np.load(output) as file:
                answers[variant] = file["arr_0"]
    expected = answers[list(built)[-1]]
    differences = {v: float(np.abs(each - expected).max() / np.abs(expected).max()) for v, each in answers.items()}
    return {variant: median(each) for variant, each in times.items()}, differences


def main():
    if sys.argv[1:2] == ["--tune-relax"]:
        name, peer, seed, trials, folder = sys.argv[2:]
        return tune_relax(name, peer, int(seed), int(trials), folder)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", default=NETWORKS)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--searches", nargs="+", default=["WalkGP"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--output", type=Path, default=Path("runs/networks"))
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=PEERS, help="what tune_relax is given; none: not run")
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    os.environ["TVM_NUM_THREADS"] = str(usable_cores())  # else MetaSchedule's runner may time one thread
    compare(args)


if __name__ == "__main__":
    main()
