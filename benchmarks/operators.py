"""How fast the kernels get that the searches find, beside the vendor's library on the same device.

Tunes each workload with each search; the best few are timed again, in turns with the library, each time in a fresh process.
Compiling runs in parallel, one kernel at a time is timed. Every trial is recorded as it ends, and the same command goes on
where an interrupted one stopped. `make gpu` calls it for a GPU, `make operators` for the CPU.

The library is cuBLAS or cuDNN on a GPU, oneDNN or MKL on a CPU, through PyTorch, where TORCH_PYTHON (default: this interpreter)
has it; on a CPU also NumPy, for matrix multiplications by the fastest of OpenBLAS's kernels for this processor.

`operators.py --suite cpu` is `suite.py`: operators with constant weights, beside onnxruntime and PyTorch.
"""

import argparse
import csv
import gzip
import io
import json
import os
import platform
import random
import re
import subprocess
import sys
import time
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from statistics import mean, median, stdev

from metaschedule import Found

from nni_tensor_tuners import SearchSpace, create_search
from nni_tensor_tuners.export import PATIENT
from nni_tensor_tuners.measure import ErrorCode, Limits, measure, measure_reference
from nni_tensor_tuners.study import Objective, Study, records
from nni_tensor_tuners.tasks import SPACES, get_task
from nni_tensor_tuners.tasks.arguments import is_program
from nni_tensor_tuners.tasks.conv import Conv
from nni_tensor_tuners.tasks.device import find_device, usable_cores
from nni_tensor_tuners.tasks.matmul import BatchMatmul, Matmul
from nni_tensor_tuners.tasks.norm import Norm
from nni_tensor_tuners.tasks.program import Program
from nni_tensor_tuners.tasks.program.load import parse

# Short repeats, as there are many trials; a GPU, whose kernels are timed by its own clock, is warm sooner.
SHORT = Limits(build_seconds=60, run_seconds=60, repeats=7, repeat_seconds=0.01, timing_seconds=1.0)
LIMITS = {"cpu": SHORT, "cuda": replace(SHORT, warm_seconds=0.05)}

# CUDA cores per multiprocessor, by compute capability (CUDA C++ programming guide, arithmetic throughput of float32).
CORES = {"7.0": 64, "7.5": 64, "8.0": 64, "8.6": 128, "8.7": 128, "8.9": 128, "9.0": 128, "10.0": 128, "12.0": 128}

# Of the time that a workload has, its searches', in equal parts; the rest is for timing again.
TUNING = 0.7

# Small, odd and strided: each template's corners, for the check before anything is tuned.
CHECKED = [
    Matmul(48, 30, 64),
    Matmul(30, 15, 14, "TT"),
    BatchMatmul(24, 16, 40, "TN", 6),
    BatchMatmul(7, 5, 3, "NT", 4),
    Conv(2, 6, (13, 11), 8, (3, 3), (2, 1), (1, 0)),
    Conv(1, 8, (9, 9), 8, (3, 3), 1, 1, groups=8),
    Conv(2, 4, (20,), 6, (5,), 1, 2, dilation=2),
    Conv(1, 4, (5, 6, 7), 4, (3, 2, 1), 1, 1, groups=2),
    Conv(1, 6, (6, 5), 4, (3, 3), 2, 1, transposed=True, output_padding=1),
    Norm(48, 30, 8),
]


class Trials:
    """Measures many configurations at a time, and writes each to a file of records; what is there already is not repeated."""

    def __init__(self, path, device, jobs, deadline):
        self.path, self.device, self.jobs, self.deadline = path, device, jobs, deadline
        self.pool = ThreadPoolExecutor(jobs)
        self.known = {self._key(r): r for r in records.read(path)}

    def run(self, what, workload, propose, trials, tell=lambda config, record: None):
        """Run trials until there are so many, time is up, or ``propose`` (a function that returns a configuration) has no more.

        Returns
        -------
        list
            The records.
        """
        found, running, left = [], {}, trials
        for record in [r for r in self.known.values() if r["what"] == what and r["workload"] == _plain(workload)]:
            tell(record["config"], record)
            found.append(record)
            left -= 1
        best = min((r["latency_ms"] for r in found if records.succeeded(r)), default=None)
        while running or left > 0:
            while left > 0 and len(running) < self.jobs and time.monotonic() < self.deadline:
                config = propose()
                if config is None:
                    left = 0
                    break
                running[self.pool.submit(measure, workload, config, self.device, LIMITS[self.device.kind], best)] = config
                left -= 1
            if not running:
                break
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                config = running.pop(future)
                place = {"workload": _plain(workload), "device": self.device.label()}
                record = {"what": what, "config": config, **future.result(), **place}
                records.append(self.path, record)
                tell(config, record)
                found.append(record)
                if records.succeeded(record):
                    best = min(best or record["latency_ms"], record["latency_ms"])
            tflops = max((r["tflops"] for r in found if records.succeeded(r)), default=0)
            print(f"\r{what}: {len(found)} trials, best {tflops:.4g} TFLOPS ", end="", file=sys.stderr, flush=True)
        print(file=sys.stderr)
        return found

    @staticmethod
    def _key(record):
        return json.dumps([record["what"], record["workload"], record["config"]])


def space_of(task, device, space):
    extended = space == "extended"
    return SearchSpace.from_json(task.search_space(device, extended), task.constraints(device, extended))


def check_templates(device, trials, each):
    """Random legal configurations of small shapes against NumPy; returns what is wrong."""
    wrong = []
    for workload in CHECKED:
        for space in (SPACES if device.kind == "cuda" else SPACES[:1]) if each else []:
            legal, rng = space_of(workload, device, space), random.Random(0)
            configs = [legal.sample(rng) for _ in range(each)]
            found = trials.run(f"check {space} {workload.operator}", workload, lambda: configs.pop() if configs else None, each)
            wrong += [r for r in found if r["error_code"] != ErrorCode.NO_ERROR]
    return wrong


def tune(workload, label, search, seed, device, trials, count):
    """The records of one search with one seed; ``search`` is a name, or "name:extended" for the larger space."""
    name, _, space = search.partition(":")
    study = Study(
        create_search(name, space_of(workload, device, space or "paper"), seed=seed),
        settle=workload.settler(device),
        first=workload.first(device),
        describe=partial(workload.describer, device),
    )
    ids = {}  # configuration, as text -> trial

    def propose():
        trial = len(ids)
        for config in study.ask([trial]):
            ids[json.dumps(config)] = trial
            return config

    def tell(config, record):
        study.tell(ids.get(json.dumps(config)), Objective().of_record(record), config=config)

    return trials.run(f"{label} {search} seed {seed}", workload, propose, count, tell)


def time_again(workload, label, configs, device, trials, torch_python, rounds):
    """Latencies in ms, median over rounds in turns: of configurations (NaN where one failed), and of libraries by name.

    A configuration that names MetaSchedule's folder stands for what MetaSchedule found.
    """

    def once(config):
        return measure(Found(config["workload"]) if "folder" in config else workload, config, device, PATIENT)

    ours, libraries = [[] for _ in configs], {}
    for _ in range(rounds):
        results = trials.pool.map(once, configs)
        for result, times in zip(results, ours):
            times.append(result["latency_ms"] if result["error_code"] == ErrorCode.NO_ERROR else float("nan"))
        yardstick = with_torch(workload, label, device, torch_python)
        if yardstick:
            libraries.setdefault(yardstick["library"], []).append(yardstick["latency_ms"])
        if device.kind == "cpu":
            for name, environment in openblas_kernels(workload).items():
                result = measure_reference(workload, PATIENT, environment)
                if result["error_code"] == ErrorCode.NO_ERROR:
                    libraries.setdefault(name, []).append(result["latency_ms"])
    return [median(times) for times in ours], {name: median(times) for name, times in libraries.items()}


def openblas_kernels(workload):
    """Name -> environment: NumPy as it comes, and with OpenBLAS told to use its AVX-512 kernels where the processor has it."""
    if workload.operator.startswith(("conv", "program")):
        return {}
    found = {"NumPy": {}}
    if find_device("cpu").vector_lanes == 16:
        found["NumPy, OpenBLAS's SkylakeX kernels"] = {"OPENBLAS_CORETYPE": "SkylakeX"}
    return found


def with_torch(workload, label, device, torch_python):
    """What torch_yardstick.py prints, or None where there is no PyTorch, or it does not know a program."""
    described = _plain(workload)
    if is_program(label):
        described = {"program": parse(label)[1], "shapes": workload.shapes, "dtypes": workload.dtypes}
    command = [torch_python, Path(__file__).with_name("torch_yardstick.py"), device.kind, json.dumps(described)]
    threads = {"OMP_NUM_THREADS": str(usable_cores())}
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **threads})
    if ended.returncode != 0 and "No module named 'torch'" not in ended.stderr:
        print(f"PyTorch failed: {(ended.stderr.strip().splitlines() or ['it says nothing'])[-1]}", file=sys.stderr)
    return json.loads(ended.stdout) if ended.returncode == 0 else None


def metaschedule(label, trials, folder):
    """Have MetaSchedule tune a workload into a folder, unless it has."""
    if (folder / "database_tuning_record.json").is_file():
        return
    folder.mkdir(parents=True, exist_ok=True)
    print(f"MetaSchedule tunes {label} ...", file=sys.stderr, flush=True)
    command = [sys.executable, Path(__file__).with_name("metaschedule.py"), label, str(trials), folder]
    threads = {"TVM_NUM_THREADS": str(usable_cores())}
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, **threads})


def peak_tflops(device):
    """The float32 peak of a GPU at its highest clock, or None where it is not known (a CPU's)."""
    if device.kind != "cuda":
        return None
    import tvm

    query = ["nvidia-smi", "--query-gpu=clocks.max.sm,compute_cap", "--format=csv,noheader,nounits"]
    ended = subprocess.run(query, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        return None
    clock, capability = ended.stdout.splitlines()[0].split(", ")
    cores = CORES.get(capability)
    return cores and tvm.cuda(0).multi_processor_count * cores * 2 * float(clock) * 1e6 / 1e12


def record_landscape(workload, label, device, trials, count, folder):
    """Measure random legal configurations of the papers' space, and write them as a landscape that `replay` reads."""
    space, rng, seen = space_of(workload, device, "paper"), random.Random(0), set()
    what = f"landscape {label}"
    seen.update(json.dumps(r["config"]) for r in trials.known.values() if r["what"] == what)

    def propose():
        for _ in range(1000):
            config = space.sample(rng)
            if json.dumps(config) not in seen:
                seen.add(json.dumps(config))
                return config
        return None

    found = trials.run(what, workload, propose, count)
    if not any(records.succeeded(record) for record in found):
        return None
    name = f"{label}__{_slug(device.name)}"
    parameters = workload.search_space(device)
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow([*parameters, "time_ms", "std_ms", "status"])
    for record in found:
        ok = records.succeeded(record)
        times = (record["latency_ms"], record["spread"] * record["latency_ms"]) if ok else ("", "")
        status = "ok" if ok else "compile_failed" if record["error_code"] in (1, 2, 3, 6) else "runtime_failed"
        table.writerow([*(json.dumps(record["config"][p]) for p in parameters), *times, status])
    path = folder / f"{name}.csv.gz"
    path.write_bytes(gzip.compress(text.getvalue().encode(), mtime=0))
    manifest = folder / "MANIFEST.json"
    entries = json.loads(manifest.read_text()) if manifest.exists() else {}
    entries[name] = {
        "source": "benchmarks/operators.py: random configurations within the constraints; std_ms is the interquartile range",
        "device": device.name,
        "params": parameters,
        "configs": len(found),
    }
    manifest.write_text(json.dumps(entries, indent=1) + "\n")
    return path


def _plain(workload):
    return json.loads(json.dumps(workload.to_dict()))


def _slug(text):
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")


def main():
    if sys.argv[1:3] == ["--suite", "cpu"]:
        from suite import main as suite

        return suite(sys.argv[3:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "workloads", nargs="+", metavar="WORKLOAD", help='named workloads, or programs of ours: "softmax(n=8192)"'
    )
    parser.add_argument("--target", default="auto", choices=["auto", "cuda", "cpu"])
    parser.add_argument(
        "--searches", nargs="+", default=["OpEvo", "WalkGP", "Random"], help="SEARCH, or SEARCH:extended for the larger space"
    )
    parser.add_argument("--trials", type=int, default=100, help="of each search and seed (default: 100)")
    parser.add_argument("--seeds", type=int, default=1, help="(default: 1)")
    parser.add_argument("--seeds-of", nargs="*", default=[], metavar="WORKLOAD=N", help="other numbers of seeds, for some")
    parser.add_argument("--finalists", type=int, default=2, help="of each search, so many are timed again (default: 2)")
    parser.add_argument("--rounds", type=int, default=3, help="so many times (default: 3)")
    parser.add_argument("--check", type=int, default=2, help="configurations per template checked first (default: 2)")
    parser.add_argument("--landscape", nargs=2, metavar=("WORKLOAD", "N"), help="then record N random configurations")
    parser.add_argument(
        "--metaschedule", nargs="*", default=[], metavar="WORKLOAD", help="also by MetaSchedule, as many trials (on a CPU)"
    )
    parser.add_argument(
        "--minutes",
        type=float,
        default=600,
        help="no trial starts after this long, an equal share for each workload and search (default: 600)",
    )
    parser.add_argument("--jobs", type=int, help="compiled side by side (default: one on a CPU, else as many as cores)")
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results"))
    args = parser.parse_args()
    try:
        device = find_device(args.target)
        named = {name: Program(name) if is_program(name) else get_task(name) for name in args.workloads}
    except ValueError as error:
        sys.exit(f"error: {error}")
    if args.metaschedule and device.kind != "cpu":
        sys.exit("error: --metaschedule: on a CPU only")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent.resolve()), os.environ.get("PYTHONPATH", "")])
    begun = time.monotonic()
    args.output.mkdir(parents=True, exist_ok=True)
    slug = _slug(device.name)
    jobs = args.jobs or (usable_cores() if device.kind == "cuda" else 1)
    trials = Trials(args.output / f"{slug}.jsonl", device, jobs, begun + args.minutes * 60)
    share = args.minutes * 60 / (len(named) + bool(args.landscape))  # none of the last go short
    torch_python = os.environ.get("TORCH_PYTHON", sys.executable)
    seeds_of = dict(text.split("=") for text in args.seeds_of)

    wrong = check_templates(device, trials, args.check)
    for record in wrong:
        print(f"WRONG: {record['workload']} {record['config']}: {record['error']}")
    print(f"{len(CHECKED)} small shapes, {args.check} configurations each, against NumPy on {device.name}: {len(wrong)} wrong")
    start = time.monotonic()

    float32_peak, rows = peak_tflops(device), []
    for turn, (label, workload) in enumerate(named.items()):
        peak = float32_peak if set(getattr(workload, "dtypes", ["float32"])) == {"float32"} else None
        runs, configs, seeds = {}, {}, int(seeds_of.get(label, args.seeds))
        for number, (seed, search) in enumerate(product(range(seeds), args.searches), 1):
            trials.deadline = start + share * (turn + TUNING * number / (seeds * len(args.searches)))
            found = tune(workload, label, search, seed, device, trials, args.trials)
            timed = [r for r in found if records.succeeded(r) and not r["early_stopped"]]
            timed.sort(key=lambda record: record["latency_ms"])
            runs.setdefault(search, []).append(timed)
        for key, of_seeds in runs.items():
            pooled = sorted((r for timed in of_seeds for r in timed[: args.finalists]), key=lambda record: record["latency_ms"])
            configs[key] = [record["config"] for record in pooled[: args.finalists]]
        if label in args.metaschedule:
            folder = Path("runs/metaschedule") / label
            metaschedule(label, args.trials, folder)
            configs["MetaSchedule"] = [{"workload": label, "folder": str(folder.resolve())}]
            runs["MetaSchedule"] = []
        if is_program(label) and (default := workload.default(device)):
            configs["untuned"], runs["untuned"] = [default], []
        flat = [config for found in configs.values() for config in found]
        ours, libraries = time_again(workload, label, flat, device, trials, torch_python, args.rounds)
        again = dict(zip(map(json.dumps, flat), ours))
        fastest = min(libraries, key=libraries.get, default=None)
        for key, of_seeds in runs.items():
            bests = [timed[0]["tflops"] for timed in of_seeds if timed]
            latencies = [again[json.dumps(config)] for config in configs[key]]
            latencies = [latency for latency in latencies if latency == latency]
            if not latencies:
                continue
            tflops = workload.flop / min(latencies) / 1e9
            row = {
                "workload": label,
                "search": key,
                "trials": args.trials,
                "seeds": len(bests),
                "best_tflops_by_seed": bests,
                "retimed_tflops": tflops,
                "config": configs[key][[again[json.dumps(c)] for c in configs[key]].index(min(latencies))],
                "libraries_tflops": {name: workload.flop / latency / 1e9 for name, latency in libraries.items()},
                "of_peak": peak and tflops / peak,
            }
            rows.append(row)
            of_seeds = f"{mean(bests):.4f}" if bests else "-"
            if len(bests) > 1:
                of_seeds += f" +- {stdev(bests):.4f} ({len(bests)} seeds)"
            beside = ", ".join(f"{libraries[n] / min(latencies):.2f} x {n}" for n in sorted(libraries, key=libraries.get))
            print(
                f"{label:<13} {key:<17} best of {args.trials}: {of_seeds}; "
                f"timed again {tflops:.4f} TFLOPS; {beside or 'no library'}"
                + (f"; {tflops / peak:.1%} of peak" if peak else ""),
                flush=True,
            )
        if fastest is None and device.kind == "cuda":
            print(f"{label}: no PyTorch in {Path(torch_python).name}, so no vendor library to compare with", flush=True)
    described = {
        "device": device.name,
        "arch": device.arch,
        "peak_fp32_tflops": float32_peak,
        "host": find_device("cpu").name,
        "cores": usable_cores(),
        "python": platform.python_version(),
        "command": "benchmarks/operators.py " + " ".join(sys.argv[1:]),
        "rows": rows,
    }
    (args.output / f"{slug}.json").write_text(json.dumps(described, indent=1) + "\n")
    if args.landscape:
        trials.deadline = start + args.minutes * 60
        folder = args.output / "landscapes"
        folder.mkdir(exist_ok=True)
        label, count = args.landscape
        path = record_landscape(get_task(label), label, device, trials, int(count), folder)
        print(f"landscape written to {path}" if path else "landscape: nothing succeeded")
    print(f"{time.monotonic() - begun:.0f} s; records in {trials.path}, results in {args.output / f'{slug}.json'}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
