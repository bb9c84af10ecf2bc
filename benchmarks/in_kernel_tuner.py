"""WalkGP beside Kernel Tuner's own strategies, inside Kernel Tuner: its simulation mode on published caches.

usage: in_kernel_tuner.py RECORDING [RECORDING ...] [--seeds 20] [--evaluations 200] [--minutes 3] [--output runs/kernel_tuner]

RECORDING is a folder as `tensor-tuners replay` reads it, its MANIFEST.json having each landscape's "params" and
"restrictions", or a cache file of Kernel Tuner's, NAME.json or NAME.json.gz. Wanted besides: pip install '.[kernel-tuner]'.

Every strategy gets the same cache, the same restrictions and the same max_fevals, and has its default options. Runs are kept
in the output folder; the same call goes on where it was interrupted or where --minutes ended it, and prints what there is.

Printed, for each recording and as mean over them:
@50 ...    lowest recorded time over the lowest time found by then, mean over the seeds; 0 where nothing has succeeded. What
           counts is what Kernel Tuner's budget counts: a configuration once, a failed one too. Where a strategy ends before
           its budget, it stays where it is.
optimum    share of the runs that found the lowest time.
score      the score of Kernel Tuner's methodology (package autotuning_methodology, 1.1), over evaluations: (baseline - curve) /
           (baseline - lowest), mean over the evaluations of a range. The curve is the median over the seeds, the baseline the
           expected best of random search without replacement. The range is from where the baseline has come 1 % of the way from
           the median to the lowest time to where it has come 95 %, or to the last evaluation that was run.
in time    the same over simulated time, the range from so many evaluations to so many of the median duration: what the cache
           says that compiling, checking and timing took, and the strategy's own time. The curve is an isotonic regression over
           the runs of all seeds. "-" where the cache has no durations.
seconds    that a run took here.
"""

import argparse
import contextlib
import io
import json
import math
import random
import sys
import tempfile
import time
import warnings
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import numpy as np

from nni_tensor_tuners.arena import landscape
from nni_tensor_tuners.study import records

OURS = "WalkGP"
# All of Kernel Tuner's for one objective that it installs by itself, but for brute force and for "minimize", one local search.
THEIRS = (
    *("adaptive_tabu_greywolf", "basinhopping", "bayes_opt", "diff_evo", "dual_annealing", "firefly_algorithm"),
    *("genetic_algorithm", "greedy_ils", "greedy_mls", "hybrid_vndx", "mls", "ordered_greedy_mls", "pso", "random_sample"),
    "simulated_annealing",
)
DURATIONS = ("compile_time", "verification_time", "benchmark_time", "framework_time", "strategy_time")
RANGE = (0.01, 0.95)
POINTS_IN_TIME = 1000


# Recordings: a name, the content of a cache file, and restrictions.


def recordings(source):
    """The recordings of a source, as (name, content, restrictions)."""
    path = Path(source)
    if path.is_dir():
        manifest = json.loads((path / landscape.MANIFEST).read_text())
        return [(each.name, *of_landscape(each, manifest[each.name])) for each in landscape.load(path)]
    content = json.loads(records.read_text(path))
    for entry in content["cache"].values():
        entry.pop("times", None)  # the single timings, most of the file
    return [(path.name.removesuffix(".gz").removesuffix(".json"), content, "cached")]


def of_landscape(recording, entry):
    names, fixed = list(entry["params"]), {name: values[0] for name, values in entry["params"].items() if len(values) == 1}
    cache = {}
    for point, fitness in recording.fitness.items():
        config = {**fixed, **recording.space.config(point)}
        config = {name: config[name] for name in names}
        cache[key_of(config, names)] = {**config, "time": 1 / fitness if fitness else "RuntimeFailedConfig"}
    return {**about(entry), "tune_params_keys": names, "tune_params": entry["params"], "cache": cache}, entry["restrictions"]


def about(entry):
    return {"device_name": entry["device"], "kernel_name": entry["kernel"], "problem_size": entry["problem_size"]}


def key_of(config, names):
    return ",".join(str(config[name]) for name in names)


def duration(result):
    """Milliseconds that an evaluation took, None where nothing is known."""
    return sum(result.get(name, 0) for name in DURATIONS) if "compile_time" in result else None


# Runs.


def run(path, restrictions, label, seed, evaluations):
    """One run: the lowest time (None before there is one) and the milliseconds spent, after each evaluation."""
    import kernel_tuner

    from nni_tensor_tuners.frontends.kernel_tuner import strategy

    content = json.loads(Path(path).read_text())
    names = content["tune_params_keys"]
    if restrictions == "cached":

        def restrictions(config):
            return key_of(config, names) in content["cache"]

    random.seed(seed)
    np.random.seed(seed)
    start = time.perf_counter()
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):  # some strategies print
        warnings.simplefilter("ignore")
        results, _ = kernel_tuner.tune_kernel(
            content["kernel_name"],
            "__global__ void kernel() {}",
            content["problem_size"],
            [],
            content["tune_params"],
            restrictions=restrictions,
            lang="CUDA",
            strategy=strategy(label, seed=seed) if label == OURS else label,
            strategy_options={"max_fevals": evaluations},
            cache=str(path),
            simulation_mode=True,
            quiet=True,
        )
    seen, best, spent, total, lowest = set(), [], [], 0.0, None
    for result in results:
        took = duration(result)
        total = None if None in (took, total) else total + took
        if (key := key_of(result, names)) in seen:
            continue
        seen.add(key)
        if "__error__" not in result:
            lowest = min(result["time"], lowest or math.inf)
        best.append(lowest)
        spent.append(total)
    return {"best": best, "spent": spent, "seconds": time.perf_counter() - start}


def run_all(found, args, path):
    """Run what is missing, and append it to a file."""
    done = {(each["space"], each["strategy"], each["seed"]) for each in records.read(path)}
    work = [(*each, label, seed) for seed in range(args.seeds) for each in found for label in args.strategies]
    work = [(name, *others) for name, content, *others in work if (name, *others[1:]) not in done]
    deadline = time.monotonic() + 60 * args.minutes
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(args.jobs, initializer=one_thread) as pool:
        for name, content, _ in found:
            (Path(folder) / f"{name}.json").write_text(json.dumps(content))
        futures = {
            pool.submit(run, f"{folder}/{name}.json", restrictions, label, seed, args.evaluations): (name, label, seed)
            for name, restrictions, label, seed in work
        }
        try:
            for ended in as_completed(list(futures)):
                write(path, futures.pop(ended), ended.result())
                if time.monotonic() > deadline:
                    break
        finally:
            pool.shutdown(cancel_futures=True)
    for ended, which in futures.items():
        if not ended.cancelled():
            write(path, which, ended.result())
    return sum(each.cancelled() for each in futures)


def write(path, which, result):
    records.append(path, {**dict(zip(("space", "strategy", "seed"), which)), **result})


def one_thread():
    from threadpoolctl import threadpool_limits

    threadpool_limits(1)


# The score.


class Score:
    """What the score needs to know of a recording: ``times`` of what succeeds, ascending; durations; the range."""

    def __init__(self, content, evaluations):
        entries = content["cache"].values()
        succeeded = np.array([not isinstance(entry["time"], str) for entry in entries])
        self.times = np.sort([entry["time"] for entry in entries if not isinstance(entry["time"], str)])
        self.first, last = (self.evaluations_to(share) for share in RANGE)
        self.last = min(max(last, self.first + 2), evaluations)
        durations = [duration(entry) for entry in entries]
        self.median = self.mean = None
        if None not in durations:
            durations = np.array(durations)
            self.median, self.mean = np.median(durations), durations[succeeded].mean()
            if not succeeded.all():
                self.mean += durations[~succeeded].mean() * (1 - succeeded.mean())

    def evaluations_to(self, share):
        """After so many evaluations random search is expected to be so far on the way from the median to the lowest time."""
        lowest, count = self.times[0], len(self.times)
        worse = int(np.sum(self.times > lowest + (np.median(self.times) - lowest) * (1 - share)))
        worse -= self.times[count - 1 - worse] == lowest
        return math.ceil(worse / (count + 1 - worse))

    def baseline(self, evaluations):
        """The expected best of random search after so many evaluations, an array."""
        count = len(self.times)
        ranks = np.minimum(count - 1, np.round(evaluations * (count + 1) / (evaluations + 1)).astype(int))
        return self.times[count - 1 - ranks]

    def ranks(self, best):
        return np.searchsorted(self.times, best)

    def over_evaluations(self, bests):
        """The score of runs, their lowest times as an array of shape (runs, evaluations), NaN before a success."""
        evaluations = np.arange(self.first, self.last + 1)
        ranks = np.where(np.isnan(bests), np.nan, self.ranks(bests))[:, evaluations - 1]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # where no run has succeeded, the slowest stands for it
            middle = np.nan_to_num(np.nanmedian(ranks, axis=0), nan=len(self.times) - 1)
        return self._mean(self.times[np.round(middle).astype(int)], self.baseline(evaluations))

    def over_time(self, bests, spent):
        """The score of runs by the milliseconds spent, shapes as before; None where these are not known."""
        from scipy.interpolate import PchipInterpolator
        from sklearn.isotonic import IsotonicRegression

        if self.median is None:
            return None
        moments = np.linspace(self.first * self.median, self.last * self.median, POINTS_IN_TIME)
        known = ~np.isnan(bests) & (spent <= moments[-1] * 1.1)
        fit = IsotonicRegression(increasing=False, out_of_bounds="clip").fit(spent[known], self.ranks(bests)[known])
        curve = self.times[np.round(fit.predict(moments)).astype(int)]
        evaluations = np.unique(np.maximum(np.round(moments / self.mean), 1))
        smooth = PchipInterpolator(evaluations, self.baseline(evaluations))
        return self._mean(curve, smooth(np.linspace(evaluations[0], evaluations[-1], POINTS_IN_TIME)))

    def _mean(self, curve, baseline):
        return float(np.mean((baseline - curve) / (baseline - self.times[0])))


# The report.


def rows(found, runs, args):
    """(space, strategy) -> what is printed of it."""
    answer = {}
    for name, content, _ in found:
        score = Score(content, args.evaluations)
        for label in args.strategies:
            own = sorted(
                (each for each in runs if (each["space"], each["strategy"]) == (name, label)), key=lambda each: each["seed"]
            )
            if not own:
                continue
            bests, spent = (
                padded([each[what] for each in own], args.evaluations, what == "best") for what in ("best", "spent")
            )
            fractions = np.nan_to_num(score.times[0] / bests)
            answer[name, label] = {
                "fractions": fractions,
                "score": score.over_evaluations(bests),
                "in time": score.over_time(bests, spent),
                "optimum": float(np.mean(fractions[:, -1] > 1 - 1e-9)),
                "seconds": float(np.mean([each["seconds"] for each in own])),
            }
    return answer


def padded(lists, length, hold):
    """Shape (lists, length), NaN for None; where a list is shorter, its last value if it is to ``hold``, else NaN."""
    filled = [each + each[-1:] * (length - len(each)) if hold else each + [None] * (length - len(each)) for each in lists]
    return np.array([[math.nan if x is None else x for x in each] for each in filled])


def show(found, runs, args):
    table = rows(found, runs, args)
    names = [name for name, *_ in found]
    labels = [label for label in args.strategies if all((name, label) in table for name in names)]
    marks = [mark for mark in args.at if mark <= args.evaluations]
    header = f"{'strategy':<24}" + "".join(f"{f'@{mark}':>7}" for mark in marks) + "  optimum   score  in time  seconds"
    for name, content, _ in found:
        score = Score(content, args.evaluations)
        print(f"{name}: {len(content['cache'])} configurations, {len(score.times)} succeed")
        print(f"score: evaluations {score.first} to {score.last}\n{header}")
        for label in labels:
            print(line(label, [table[name, label]], marks))
        print()
    print(f"mean of {len(found)} recordings, {args.seeds} seeds, {args.evaluations} evaluations\n{header}")
    for label in labels:
        print(line(label, [table[name, label] for name in names], marks))
    if OURS in labels:
        print(f"\n{OURS} ahead of each, mean of the recordings, and the standard error of the seeds")
        print("".join([f"{'strategy':<24}", *(f"{f'@{mark}':>16}" for mark in marks)]))
        for label in (label for label in labels if label != OURS):
            ahead = [difference(table, names, label, mark) for mark in marks]
            print(f"{label:<24}" + "".join(f"   {mean:+.3f}+-{error:.3f}" for mean, error in ahead))


def line(label, each, marks):
    """A row of a table: the mean over the recordings, of which there may be one."""
    at = "".join(f"{np.mean([one['fractions'][:, mark - 1].mean() for one in each]):7.3f}" for mark in marks)
    optimum, score, seconds = (np.mean([one[what] for one in each]) for what in ("optimum", "score", "seconds"))
    in_time = [one["in time"] for one in each]
    in_time = f"{'-':>9}" if None in in_time else f"{np.mean(in_time):9.3f}"
    return f"{label:<24}{at}{optimum:9.2f}{score:8.3f}{in_time}{seconds:9.2f}"


def difference(table, names, label, mark):
    """How far we are ahead after so many evaluations, in the mean of the recordings: mean and standard error over the seeds."""
    pairs = [[table[name, each]["fractions"][:, mark - 1] for each in (OURS, label)] for name in names]
    seeds = min(len(each) for pair in pairs for each in pair)  # all, unless runs are left
    ahead = np.mean([ours[:seeds] - theirs[:seeds] for ours, theirs in pairs], axis=0)
    return ahead.mean(), ahead.std(ddof=1) / math.sqrt(seeds) if seeds > 1 else math.nan


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recordings", nargs="+", metavar="RECORDING")
    parser.add_argument("--strategies", nargs="+", default=[OURS, *THEIRS], metavar="NAME")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--evaluations", type=int, default=200)
    parser.add_argument("--at", type=int, nargs="+", default=[50, 100, 200], metavar="EVALUATIONS")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default: %(default)s)")
    parser.add_argument("--minutes", type=float, default=math.inf, help="end after about so long")
    parser.add_argument("--output", type=Path, default=Path("runs/kernel_tuner"), help="a folder (default: %(default)s)")
    args = parser.parse_args()
    found = [each for source in args.recordings for each in recordings(source)]
    args.output.mkdir(parents=True, exist_ok=True)
    path = args.output / f"runs_{args.evaluations}.jsonl"
    left = run_all(found, args, path)
    show(found, [each for each in records.read(path) if each["seed"] < args.seeds], args)
    if left:
        print(f"\n{left} runs are left; the same call goes on")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
