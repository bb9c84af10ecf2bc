"""Optuna's samplers and WalkGPSampler in study.optimize, on recorded landscapes.

usage: optuna_samplers.py FOLDER [--samplers WalkGP TPE ...] [--seeds 20] [--trials 200] [--jobs 2] [--minutes M] [--runs FILE]

FOLDER has a MANIFEST.json with the values of each landscape's parameters and the restrictions between them. Needs Optuna 5,
and for GP also PyTorch. Every run is added to the file of runs: another call goes on, and --minutes ends a call early. Printed
is the fraction of the optimum after 50, 100 and 200 trials, of each landscape the mean over its seeds.

All samplers get the same objective: the recorded fitness, 1 / time, is maximised, and every parameter is suggested as a
categorical of its values. In rows with :ranks it is an integer that numbers the values in their order. WalkGPSampler knows the
restrictions beforehand, as its constraints; Optuna's samplers have no place for them. A trial that breaks one therefore costs
nothing: it is told at once, by set_constraint and the value 0, from which TPE and GP learn to avoid such, and does not count. A
configuration recorded as failed is told in the same way and counts. So does one that was measured before in the run, as it does
in study.optimize; in rows with :new it does not.
"""

import argparse
import json
import time
import warnings
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from pathlib import Path
from statistics import mean

import optuna
from optuna.distributions import CategoricalDistribution

from nni_tensor_tuners.arena import landscape
from nni_tensor_tuners.frontends.optuna import WalkGPSampler

MARKS = (50, 100, 200)
RANKS, NEW = ":ranks", ":new"
OURS = "WalkGP"
THEIRS = {
    "TPE": lambda seed: optuna.samplers.TPESampler(seed=seed),  # multivariate, Optuna 5's default
    "TPE-univariate": lambda seed: optuna.samplers.TPESampler(seed=seed, multivariate=False),
    "GP": lambda seed: optuna.samplers.GPSampler(seed=seed),
    "Random": lambda seed: optuna.samplers.RandomSampler(seed=seed),
}
NAMES = [OURS, *(name + ranks + new for new in ("", NEW) for ranks in ("", RANKS) for name in THEIRS)]
# A run ends after so many times its trials, whatever they were: one can get stuck where nothing is new.
PATIENCE = 6


def run(folder, where, name, seed, trials):
    """One study: the best so far after each trial that counts, as a fraction of the optimum, and how it came to pass."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore")  # Optuna's about what is experimental
    entry = json.loads((folder / landscape.MANIFEST).read_text())[where]
    (recording,) = landscape.load(folder / f"{where}.csv.gz")
    values = {each.name: [each.decode(each.unrank(i)) for i in range(each.size)] for each in recording.space.parameters}
    by_rank, free = RANKS in name, name.endswith(NEW)
    if name == OURS:
        space = {key: CategoricalDistribution(values.get(key, listed)) for key, listed in entry["params"].items()}
        sampler = WalkGPSampler(space, entry["restrictions"], seed)
    else:
        sampler = THEIRS[name.partition(":")[0]](seed)
    best, measured, illegal, repeated = [], set(), 0, 0

    def objective(trial):
        nonlocal illegal, repeated
        if by_rank:
            config = {key: listed[trial.suggest_int(key, 0, len(listed) - 1)] for key, listed in values.items()}
        else:
            config = {key: trial.suggest_categorical(key, listed) for key, listed in values.items()}
        point = recording.space.point(config)
        fitness = recording.fitness.get(point)
        trial.set_constraint("runs", 1.0 if fitness is None else -1.0)
        known, legal = point in measured, point in recording.fitness
        measured.add(point)
        illegal, repeated = illegal + (not legal), repeated + (legal and known)
        if legal and not (free and known):
            best.append(max(best[-1] if best else 0.0, (fitness or 0.0) / recording.optimum))
        if len(best) == trials or trial.number + 1 == PATIENCE * trials:
            trial.study.stop()
        return fitness or 0.0

    start = time.process_time()
    optuna.create_study(direction="maximize", sampler=sampler).optimize(objective)
    counts = {"illegal": illegal, "repeated": repeated, "seconds": round(time.process_time() - start, 2)}
    return {"where": where, "sampler": name, "seed": seed, **counts, "best": [round(each, 6) for each in best]}


def key_of(made):
    return made["where"], made["sampler"], made["seed"]


def run_all(folder, names, seeds, trials, jobs, path, seconds):
    """Make the runs that the file lacks, seed by seed, none after so many seconds; returns all, and the landscapes."""
    end = time.monotonic() + seconds
    runs = {key_of(each): each for each in map(json.loads, path.read_text().splitlines())} if path.is_file() else {}
    places = list(json.loads((folder / landscape.MANIFEST).read_text()))
    work = [(where, name, seed) for seed in range(seeds) for where in places for name in names]
    work = [each for each in work if each not in runs]
    with ProcessPoolExecutor(jobs) as pool, path.open("a") as file:
        running = set()
        while running or (work and time.monotonic() < end):
            while work and len(running) < jobs and time.monotonic() < end:
                running.add(pool.submit(run, folder, *work.pop(0), trials))
            over, running = wait(running, return_when=FIRST_COMPLETED)
            for made in (each.result() for each in over):
                runs[key_of(made)] = made
                print(json.dumps(made), file=file, flush=True)
    return runs, places


def table(runs, places, names, trials):
    """Rows of a table, over the seeds that every landscape has."""
    marks = [mark for mark in MARKS if mark <= trials]
    head = "".join(f"{f'@{mark}':>8}" for mark in marks)
    lines = [f"{'sampler':<18}{head}  seeds  illegal  repeated  s a run   {OURS} less it, same seeds"]
    for name in names:
        seeds = [seed for seed in range(1000) if all((where, name, seed) in runs for where in places)]
        made = [runs[where, name, seed] for where in places for seed in seeds]
        if not made:
            continue
        fractions = "".join(f"{mean(each['best'][:mark][-1] for each in made):8.3f}" for mark in marks)
        means = [mean(each[count] for each in made) for count in ("illegal", "repeated", "seconds")]
        both = [(ours, each) for each in made if (ours := runs.get((each["where"], OURS, each["seed"])))]
        leads = [mean(ours["best"][:mark][-1] - each["best"][:mark][-1] for ours, each in both) for mark in marks if both]
        counts = f"{len(seeds):7}{means[0]:9.0f}{means[1]:10.1f}{means[2]:9.1f}"
        lines.append(f"{name:<18}{fractions}{counts}" + "".join(f"{lead:+8.3f}" for lead in leads if name != OURS))
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--samplers", nargs="+", choices=NAMES, default=NAMES, metavar="SAMPLER")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--runs", type=Path, default=Path("runs/optuna_samplers.jsonl"))
    args = parser.parse_args()
    args.runs.parent.mkdir(parents=True, exist_ok=True)
    runs, places = run_all(args.folder, args.samplers, args.seeds, args.trials, args.jobs, args.runs, args.minutes * 60)
    print(f"mean of {len(places)} landscapes, {args.trials} trials, Optuna {optuna.__version__}")
    print("\n".join(table(runs, places, args.samplers, args.trials)))
    for where in places:
        print(f"\n{where}")
        print("\n".join(table(runs, [where], args.samplers, args.trials)))


if __name__ == "__main__":
    main()
