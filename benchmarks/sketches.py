"""Searches in MetaSchedule's own spaces, on a CPU: ours, as its search strategy, beside its evolutionary search.

usage: sketches.py [TASK ...] [--searches SEARCH ...] [--trials 64 128] [--seeds 1] [--rounds 9] [--output runs/sketches]

A search is one of ours (WalkGP, Bansor:inner=OpEvo), in MetaSchedule's space or, as WalkGP+template, with our template of the
operator added where there is one; or evolutionary:N, MetaSchedule's with rounds of N trials and its XGBoost model. All run in
`meta_schedule.tune_tir` with the same builder and runner (ours: `frontends.metaschedule`), in turns. What each had found after so
many trials, and by the time that the quickest took for them, is timed again in turns, in fresh processes, its answer checked; its
fastest round counts, as disturbances only slow down. An interrupted comparison goes on.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from statistics import geometric_mean

from peak import peak

from nni_tensor_tuners.arena.summary import parse_search
from nni_tensor_tuners.tasks.device import find_device, usable_cores
from nni_tensor_tuners.tasks.program import Program
from nni_tensor_tuners.tasks.target import target_of

TASKS = {
    "MM1": "matmul()",
    "C6+bias+ReLU": "conv_bias_relu()",
    "TBS": "tbs()",
    "softmax": "softmax()",
    "depthwise": "dep(height=56, width=56, channels=128)",
    "conv1d": "c1d()",
}
TEMPLATE = "+template"
SEARCHES = ["WalkGP", "WalkGP+template", "Bansor", "evolutionary:16", "evolutionary:64"]
RECORDS = "database_tuning_record.json"
ROUND = 4  # configurations that ours are asked for at a time
PATIENCE = 90  # seconds: a fresh worker imports for ten


def tune(text, search, seed, trials, folder):
    """Run one search in this process; ``folder`` keeps MetaSchedule's database."""
    from tvm.s_tir import meta_schedule as ms

    from nni_tensor_tuners.frontends.metaschedule import builder, runner, strategy
    from nni_tensor_tuners.tasks.program.sketches import read_tensor_instructions

    name, _, argument = search.partition(":")
    if name == "evolutionary":
        settings = {"strategy": "evolutionary", "num_trials_per_iter": int(argument), "cost_model": "xgb"}
        if int(argument) < 64:  # it predicts at random until it has so many
            settings["cost_model"] = ms.cost_model.XGBModel(num_warmup_samples=int(argument))
    else:
        ours, class_args = parse_search(search.removesuffix(TEMPLATE))
        ours = strategy(ours, seed, search.endswith(TEMPLATE), **class_args)
        settings = {"strategy": ours, "num_trials_per_iter": ROUND, "cost_model": "random"}
    target = target_of(find_device("cpu"))
    read_tensor_instructions()
    source = Program(text).source
    ms.tune_tir(
        source,
        target,
        folder,
        max_trials_global=trials,
        builder=builder(PATIENCE),
        runner=runner(source, PATIENCE),
        num_tuning_cores=usable_cores(),
        seed=seed + 1,
        **settings,
    )


def watched(text, search, seed, trials, folder):
    """Run one search in a process of its own; returns when each of its records came, in seconds from the first round on."""
    folder.mkdir(parents=True, exist_ok=True)
    times = folder / "seconds.json"
    if not times.is_file():
        (folder / RECORDS).unlink(missing_ok=True)
        (folder / "database_workload.json").unlink(missing_ok=True)
        command = [sys.executable, __file__, "--run", text, search, str(seed), str(trials), str(folder)]
        start, seconds = time.perf_counter(), []
        with open(folder / "log.txt", "w", encoding="utf-8") as log:
            with subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT) as process:
                while process.poll() is None:
                    time.sleep(0.2)
                    done = len(lines(folder))
                    seconds += [time.perf_counter() - start] * (done - len(seconds))
        if process.returncode:
            raise SystemExit(f"error: {search} on {text} ended with {process.returncode}, see {folder}/log.txt")
        seconds += [time.perf_counter() - start] * (len(lines(folder)) - len(seconds))
        times.write_text(json.dumps(seconds))
    return json.loads(times.read_text())


def lines(folder):
    path = folder / RECORDS
    return path.read_text(encoding="utf-8").splitlines() if path.is_file() else []


def best_of_first(folder, count):
    """The number of the record, among the first so many, with the lowest mean run time; None where all failed."""
    latencies = []
    for line in lines(folder)[:count]:
        _, (_, seconds, *_) = json.loads(line)
        latencies.append(sum(seconds) / len(seconds) if seconds else 1e10)
    best = min(latencies, default=1e10)
    return None if best >= 1e9 else latencies.index(best)


def timed_again(text, candidates, rounds):
    """Candidate (folder, line) -> GFLOPS, the most of ``rounds`` fresh processes, in turns: disturbances only slow down.

    Built and timed as for the searches: what is exported and loaded calls the C library otherwise than what is compiled where it
    runs.
    """
    from tvm.s_tir.meta_schedule.builder import BuilderInput
    from tvm.s_tir.meta_schedule.runner import RunnerInput

    from nni_tensor_tuners.frontends.metaschedule import builder, runner

    program, target = Program(text), target_of(find_device("cpu"))
    modules = [module_of(program.source, *candidate) for candidate in candidates]
    built = builder(PATIENCE).build([BuilderInput(module, target) for module in modules])
    seconds = {candidate: [] for candidate in candidates}
    for _ in range(rounds):
        for ((folder, line), found), artifact in zip(seconds.items(), built):
            (timed,) = runner(program.source, PATIENCE).run([RunnerInput(artifact.artifact_path, "cpu", [])])
            if timed.result().error_msg:
                print(f"    {folder.name} record {line}: {timed.result().error_msg}", flush=True)
            found += [float(each) for each in timed.result().run_secs or ()]
    for artifact in built:
        shutil.rmtree(Path(artifact.artifact_path).parent, ignore_errors=True)
    return {candidate: program.flop / min(found, default=float("inf")) / 1e9 for candidate, found in seconds.items()}


def module_of(source, folder, line):
    """The scheduled module of a record of MetaSchedule's database."""
    from tvm import s_tir

    _, (trace, *_) = json.loads(lines(folder)[line])
    schedule = s_tir.Schedule(source, error_render_level="fast")
    s_tir.schedule.Trace.apply_json_to_schedule(trace, schedule)
    return schedule.mod


def compare(args):
    print(f"{find_device('cpu').name}, {usable_cores()} cores, at most {peak():.0f} GFLOPS (peak.py)")
    print("GFLOPS of the best after so many trials, timed again", flush=True)
    ratios = {}
    for name in args.tasks:
        for seed in range(args.seeds):
            folders = {search: args.output / f"{name}-{search.replace(':', '-')}-{seed}" for search in args.searches}
            seconds = {
                search: watched(TASKS.get(name, name), search, seed, max(args.trials), folder)
                for search, folder in folders.items()
            }
            columns = {}  # (search, column) -> candidate
            for trials in args.trials:
                soonest = min(each[min(trials, len(each)) - 1] for each in seconds.values() if each)
                for search, folder in folders.items():
                    in_time = sum(each <= soonest for each in seconds[search])
                    for column, count in ((f"@{trials}", trials), (f"{trials}: {soonest:.0f} s", in_time)):
                        line = best_of_first(folder, count)
                        columns[search, column] = None if line is None else (folder, line)
            again = timed_again(TASKS.get(name, name), dict.fromkeys(filter(None, columns.values())), args.rounds)
            heads = list(dict.fromkeys(column for _, column in columns))
            print(f"\n{name}, seed {seed}\n{'':<24}" + "".join(f"{head:>14}" for head in heads) + "       seconds")
            for search in args.searches:
                values = [again.get(columns[search, head], 0.0) for head in heads]
                print(
                    f"{search:<24}" + "".join(f"{value:14.1f}" for value in values) + f"{(seconds[search] or [0])[-1]:14.0f}",
                    flush=True,
                )
                for place, value in enumerate(values):
                    ratios.setdefault((search, place), {}).setdefault(name, []).append(value)
    theirs = [search for search in args.searches if search.startswith("evolutionary")]
    if not theirs:
        return
    print("\nover the better of MetaSchedule's, means over seeds; geometric mean over tasks, lowest")
    for search in args.searches:
        if search not in theirs:
            shown = []
            for place in range(2 * len(args.trials)):
                each = [
                    sum(values) / max(sum(ratios[other, place][task]) for other in theirs)
                    for task, values in ratios[search, place].items()
                ]
                kind = f"@{args.trials[place // 2]}" + (" in equal time" if place % 2 else "")
                shown.append(f"{kind} {geometric_mean(each) if min(each) > 0 else 0:.2f}, {min(each):.2f}")
            print(f"{search:<24}" + ";  ".join(shown))


def main():
    if sys.argv[1:2] == ["--run"]:
        text, search, seed, trials, folder = sys.argv[2:]
        return tune(text, search, int(seed), int(trials), folder)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", default=list(TASKS), help=f"{', '.join(TASKS)} (default: all), or a program")
    parser.add_argument("--searches", nargs="+", default=SEARCHES)
    parser.add_argument("--trials", nargs="+", type=int, default=[64, 128])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--output", type=Path, default=Path("runs/sketches"))
    args = parser.parse_args()
    os.environ["TVM_NUM_THREADS"] = str(usable_cores())  # else MetaSchedule's runner may time one thread
    compare(args)


if __name__ == "__main__":
    main()
