"""Which task is next: Bansor's bandit, Ansor's gradient and round-robin, replayed on recorded tasks of networks.

usage: task_choice.py [--record NETWORK ... --configurations 32] [--recording benchmarks/recordings/tasks_zen5.json]
                      [--round-size 4] [--seeds 20] [--trials-per-task 12]

--record measures so many random configurations of every task of the networks, and goes on where it was interrupted. Without it,
what was recorded is replayed: inside a task its configurations are drawn in random order, the same for every choice of tasks, so
that nothing but the choice differs. Printed is the latency of each network as estimated by the best known kernels, relative to
the lowest recorded, after shares of the trials; and the trials after which each choice has what the gradient has at the end.
"foreseen" is no choice that one can have: it knows each task's recorded latencies, though not their order, and gives a round to
the task whose next trial saves most in the mean.
"""

import argparse
import json
import random
from pathlib import Path
from statistics import geometric_mean, mean

from nni_tensor_tuners import SearchSpace, create_search
from nni_tensor_tuners.measure import measure
from nni_tensor_tuners.study import Study

SELECTIONS = ("ucb", "gradient", "round-robin")
FORESEEN = "foreseen"
SHARES = (0.25, 0.5, 0.75, 1.0)


def record(networks, trials, seeds, path):
    """Record what WalkGP measures in the tasks of networks, one trial after the other from the default schedules on.

    Each is measured as its network runs it. Tasks that take less than `prepare.LEAST_SHARE` by default are left out. The file is
    written after every search, and a call goes on where one was interrupted.
    """
    from nni_tensor_tuners.networks.prepare import LEAST_SHARE, split
    from nni_tensor_tuners.tasks.device import find_device
    from nni_tensor_tuners.tasks.program import Program
    from nni_tensor_tuners.tasks.program.load import save
    from nni_tensor_tuners.tasks.shared import shared_folder

    device = find_device("cpu")
    path.parent.mkdir(parents=True, exist_ok=True)
    found = json.loads(path.read_text()) if path.is_file() else {}
    for network in networks:
        tasks, programs = found.setdefault(network, {}), {}
        for name, function, count in split(network, None, device):
            programs[name] = Program(str(save(function, shared_folder())))
            if name not in tasks:
                tasks[name] = {"count": count, "flop": programs[name].flop, "default_ms": _default(programs[name], device)}
        path.write_text(json.dumps(found))
        taken = {name: task["count"] * (task["default_ms"] or 0) for name, task in tasks.items()}
        for name, task in tasks.items():
            if taken[name] < LEAST_SHARE * sum(taken.values()):
                continue
            measured = task.setdefault("latency_ms", [])
            while len(measured) < seeds:
                measured.append(_searched(programs[name], device, len(measured), trials))
                path.write_text(json.dumps(found))
                best = min(filter(None, [task["default_ms"], *measured[-1]]))
                print(f"{network} {name}: by default {task['default_ms']:.4g} ms, best {best:.4g} ms", flush=True)


def _default(program, device):
    latencies = [measure(program, config, device, cold=True).get("latency_ms") for config in program.defaults(device)]
    return min(filter(None, latencies), default=None)


def _searched(program, device, seed, trials):
    """Latencies in ms of WalkGP's trials, as `TaskScheduler` has it inside a task; None of those that failed."""
    space = SearchSpace.from_json(program.search_space(device), program.constraints(device))
    search = create_search("WalkGP", space, seed, initial=1, features="configuration")
    known = [None]

    def timed(config):
        latency = measure(program, config, device, best_latency_ms=known[0], cold=True).get("latency_ms")
        known[0] = min(filter(None, (known[0], latency)), default=None)
        return latency and 1 / latency, latency

    first = program.defaults(device)
    study = Study(search, settle=program.settler(device))
    study.warm_start([(config, timed(config)[0]) for config in first])
    return [trial.value for trial in study.run(timed, trials)]


def replay(tasks, selection, seed, trials, round_size):
    """The estimate after each trial, relative to the lowest recorded; None until all tasks have succeeded once."""
    order = _order(tasks, seed)
    branches = [
        {"_name": name, "i": {"_type": "randint", "_value": [0, len(task["latency_ms"])]}} for name, task in tasks.items()
    ]
    space = SearchSpace.from_json({"task": {"_type": "choice", "_value": branches}})
    search = create_search(
        "TaskScheduler",
        space,
        seed,
        inner="Random",
        selection=selection,
        round_size=round_size,
        counts={name: task["count"] for name, task in tasks.items()},
        flop={name: task["flop"] for name, task in tasks.items()},
    )
    best, curve, drawn = {}, [], dict.fromkeys(tasks, 0)
    for _ in range(trials):
        (config,) = search.ask(1)
        name = config["task"]["_name"]
        latency = order[name][drawn[name]]  # whatever the search names: the order is the same for all
        drawn[name] += 1
        search.tell(config, latency and 1 / latency)
        curve.append(_estimate(tasks, best, name, latency))
    return curve


def foreseen(tasks, seed, trials, round_size):
    """As `replay`, of the choice that knows the latencies that are left of each task."""
    order = _order(tasks, seed)
    best, curve, first, left = {}, [], list(tasks), 0
    for _ in range(trials):
        if not left or not order[name]:
            candidates = first or [each for each in tasks if order[each]]
            name = max(candidates, key=lambda each: tasks[each]["count"] * _saved(order[each], best.get(each, float("inf"))))
            left = round_size
            if first:
                first.remove(name)
        left -= 1
        curve.append(_estimate(tasks, best, name, order[name].pop(0)))
    return curve


def _order(tasks, seed):
    rng = random.Random(seed)
    return {name: rng.sample(task["latency_ms"], len(task["latency_ms"])) for name, task in tasks.items()}


def _saved(latencies, best):
    """What the next of some latencies saves, in the mean over them."""
    return mean(max(best - latency, 0.0) if latency else 0.0 for latency in latencies)


def _estimate(tasks, best, name, latency):
    """The estimate over the lowest recorded, ``best`` being told a latency of a task; None until each has one."""
    if latency:
        best[name] = min(latency, best.get(name, latency))
    if len(best) < len(tasks):
        return None
    lowest = sum(task["count"] * min(filter(None, task["latency_ms"])) for task in tasks.values())
    return sum(task["count"] * best[each] for each, task in tasks.items()) / lowest


def compare(args):
    recorded = json.loads(args.recording.read_text())
    print(f"{args.seeds} seeds, rounds of {args.round_size}; estimate over the lowest recorded, after shares of the trials")
    ratios = {selection: [] for selection in (*SELECTIONS, FORESEEN)}
    for network, tasks in recorded.items():
        tasks = {name: task for name, task in tasks.items() if any(task["latency_ms"]) and len(task["latency_ms"]) > 1}
        trials = min(args.trials_per_task * len(tasks), sum(len(task["latency_ms"]) for task in tasks.values()))
        curves = {
            selection: [replay(tasks, selection, seed, trials, args.round_size) for seed in range(args.seeds)]
            for selection in SELECTIONS
        }
        curves[FORESEEN] = [foreseen(tasks, seed, trials, args.round_size) for seed in range(args.seeds)]
        print(f"\n{network}: {len(tasks)} tasks, {trials} trials")
        print(f"{'':<14}" + "".join(f"{share:>8.0%}" for share in SHARES) + "   trials to what gradient has at the end")
        for selection in curves:
            reached = [[curve[int(share * trials) - 1] for curve in curves[selection]] for share in SHARES]
            after = [f"{geometric_mean(each):8.3f}" if all(each) else f"{'-':>8}" for each in reached]
            needed = [
                next((place for place, value in enumerate(own, 1) if value and value <= other[-1]), trials) / trials
                for own, other in zip(curves[selection], curves["gradient"])
            ]
            base = mean(
                next(place for place, value in enumerate(other, 1) if value and value <= other[-1]) / trials
                for other in curves["gradient"]
            )
            ratios[selection].append(mean(needed) / base)
            print(f"{selection:<14}" + "".join(after) + f"{mean(needed) / base:10.2f} x")
    print("\ntrials over gradient's, mean of the networks")
    for selection, each in ratios.items():
        print(f"{selection:<14}{mean(each):8.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", nargs="+", metavar="NETWORK")
    parser.add_argument("--trials", type=int, default=48)
    parser.add_argument("--searches", type=int, default=3)
    parser.add_argument("--recording", type=Path, default=Path(__file__).parent / "recordings" / "tasks_zen5.json")
    parser.add_argument("--round-size", type=int, default=4)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--trials-per-task", type=int, default=12)
    args = parser.parse_args()
    if args.record:
        return record(args.record, args.trials, args.searches, args.recording)
    compare(args)


if __name__ == "__main__":
    main()
