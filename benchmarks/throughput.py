"""How many trials a second NNI makes, where their time goes, and how many the measuring code makes by itself.

usage: throughput.py [WORKLOAD ...] [--trials 40] [--concurrency 4] [--output runs/throughput]

For each workload (mm1, or "matmul --n 64 --k 64 --m 64") the same random configurations are measured twice on the CPU: by so many
threads of one process, and by so many trials at a time of an NNI experiment. A trial's seconds, on average: "begin" until its worker
is asked for (its process, its configuration), the worker's stages, "report" until NNI has seen its end, "between" until the next one
starts in its place.
"""

import argparse
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import mean

import yaml

from nni_tensor_tuners import SearchSpace, create_search
from nni_tensor_tuners.frontends.nni import rest
from nni_tensor_tuners.frontends.nni.experiment import write, write_folder
from nni_tensor_tuners.frontends.nni.manager import Manager, register
from nni_tensor_tuners.measure import measure
from nni_tensor_tuners.measure.process import STAGES
from nni_tensor_tuners.study import records
from nni_tensor_tuners.tasks import OPERATORS
from nni_tensor_tuners.tasks.arguments import add_shape, task_of
from nni_tensor_tuners.tasks.device import find_device

WORKLOADS = ["mm1", "matmul --n 64 --k 64 --m 64"]
COLUMNS = ["begin", *STAGES, "report", "between"]


def alone(task, device, trials, concurrency):
    """Trials a second, and the mean seconds of a trial by stage."""
    space = SearchSpace.from_json(task.search_space(device), task.constraints(device))
    configs = create_search("Random", space, seed=0).ask(trials)
    best, lock = [None], threading.Lock()

    def trial(config):
        result = measure(*task.part(config), device, best_latency_ms=best[0])
        with lock:
            best[0] = min(filter(None, (best[0], result.get("latency_ms"))), default=None)
        return result["stage_seconds"]

    start = time.perf_counter()
    with ThreadPoolExecutor(concurrency) as pool:
        stages = list(pool.map(trial, configs))
    return trials / (time.perf_counter() - start), {stage: mean(each.get(stage, 0.0) for each in stages) for stage in STAGES}


def by_nni(workload, task, device, trials, concurrency, folder):
    """Likewise of an experiment's trials, from the start of the first to the end of the last."""
    *_, path = write_folder(folder, "throughput", workload, task, [device], searches=["Random"])
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    write(path, {**content, "maxTrialNumber": trials, "trialConcurrency": concurrency})
    manager = Manager.create(path)
    try:
        while manager.status() not in ("DONE", "ERROR", None):
            time.sleep(1)
        jobs = {job["trialJobId"]: job for job in rest.request(f"{manager.url}/api/v1/nni/trial-jobs")}
        measured = {record["trial_job_id"]: record for record in records.read(manager.folder / records.RECORDS)}
    finally:
        manager.stop()
    seconds = {name: [] for name in COLUMNS}
    for trial, record in measured.items():
        stages = record["stage_seconds"]
        for stage in STAGES:
            seconds[stage].append(stages.get(stage, 0.0))
        seconds["begin"].append(record["time"] - sum(stages.values()) - jobs[trial]["startTime"] / 1e3)
        seconds["report"].append(jobs[trial]["endTime"] / 1e3 - record["time"])
    whole = (max(job["endTime"] for job in jobs.values()) - min(job["startTime"] for job in jobs.values())) / 1e3
    spent = {name: mean(each) for name, each in seconds.items() if each}
    return len(measured) / whole, {**spent, "between": concurrency * whole / len(measured) - sum(spent.values())}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", default=WORKLOADS)
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--concurrency", type=int, default=4)
    parser.add_argument("--output", type=Path, default=Path("runs/throughput"))
    args = parser.parse_args()
    device = find_device("cpu")
    register()
    print(f"{device.name}; {args.trials} trials, {args.concurrency} at a time; mean seconds of a trial")
    for number, workload in enumerate(args.workloads):
        described = argparse.ArgumentParser()
        described.add_argument("workload")
        add_shape(described, OPERATORS)
        task = task_of(described.parse_args(workload.split()), OPERATORS)
        print(f"\n{workload:<32}trials/s" + "".join(f"{name:>12}" for name in COLUMNS), flush=True)
        rates = []
        for name, run in (
            ("the measuring code alone", lambda: alone(task, device, args.trials, args.concurrency)),
            ("NNI", lambda: by_nni(workload, task, device, args.trials, args.concurrency, args.output / str(number))),
        ):
            rate, seconds = run()
            rates.append(rate)
            print(f"{name:<32}{rate:8.2f}" + "".join(f"{seconds.get(each, 0.0):12.3f}" for each in COLUMNS), flush=True)
        print(f"NNI makes {rates[1] / rates[0]:.0%} of them")


if __name__ == "__main__":
    main()
