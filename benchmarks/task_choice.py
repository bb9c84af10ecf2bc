"""Which task is next: our choice, Bansor's bandit, Ansor's gradient and round-robin, replayed on recorded tasks of networks.

usage: task_choice.py [--record NETWORK ... --trials 48 --searches 3] [--recording benchmarks/recordings/tasks_zen5.json ...]
                      [--round-size 1] [--replays 40] [--trials-per-task 12]

--record measures the default schedules of the networks' tasks and, where they matter, what WalkGP proposes from there on, and
goes on where it was interrupted. Without it, what was recorded is replayed, one recorded search drawn for each task: inside a
task its trials come in the order recorded, so that nothing but the choice differs. Where a recording has no default schedules,
its trials are random configurations, and come in random order. Printed is the latency of each network as estimated by the best
known kernels, relative to the lowest recorded, after shares of the trials; and the trials after which each choice has what the
gradient has at the end, over those that the gradient needs. Two choices that one cannot have tell what there is to gain, by giving
each trial to the task with the steepest descent ahead: "foreseen" knows all latencies, "informed" what the other recorded searches
of the same tasks found, and goes by their mean.
"""

import argparse
import json
import random
from itertools import accumulate
from operator import truediv
from pathlib import Path
from statistics import geometric_mean, mean

from nni_tensor_tuners import SearchSpace, create_search
from nni_tensor_tuners.measure import measure
from nni_tensor_tuners.search.task_scheduler import SELECTIONS
from nni_tensor_tuners.study import Study

FORESEEN, INFORMED = "foreseen", "informed"
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
    """The estimate in ms after each trial; None until all tasks have succeeded once.

    ``tasks`` have the latencies of one search each, ``latency_ms``, and ``default_ms`` where there is one.
    """
    branches = [
        {"_name": name, "i": {"_type": "randint", "_value": [0, len(task["latency_ms"]) + 1]}} for name, task in tasks.items()
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
    for name, latency in (known := _defaults(tasks)).items():
        search.tell({"task": {"_name": name, "i": len(tasks[name]["latency_ms"])}}, 1 / latency)
    best, curve, left = dict(known), [], {name: list(task["latency_ms"]) for name, task in tasks.items()}
    while len(curve) < trials:
        (config,) = search.ask(1)
        name = config["task"]["_name"]
        if not left[name]:  # all that is recorded of a task has been measured
            search.tell(config, None)
            continue
        latency = left[name].pop(0)  # whatever the search names
        search.tell(config, latency and 1 / latency)
        curve.append(_estimate(tasks, best, name, latency))
    return curve


def with_hindsight(tasks, trials, known):
    """As `replay`, of the choice that goes by what other trials have found.

    ``known(name, number)`` has lists of latencies, each of them of what may come in a task after so many trials.
    """
    best, left, curve = _defaults(tasks), {name: list(task["latency_ms"]) for name, task in tasks.items()}, []

    def descent(name):
        now, ahead = best.get(name, float("inf")), known(name, len(tasks[name]["latency_ms"]) - len(left[name]))
        lowest = [list(accumulate((min(each or now, now) for each in latencies), min)) for latencies in ahead]
        saved = [now - mean(of_searches) for of_searches in zip(*lowest)] if left[name] else []
        return tasks[name]["count"] * max((each / number for number, each in enumerate(saved, 1)), default=-1.0)

    for _ in range(trials):
        name = max(tasks, key=descent)
        curve.append(_estimate(tasks, best, name, left[name].pop(0)))
    return curve


def _defaults(tasks):
    return {name: task["default_ms"] for name, task in tasks.items() if task.get("default_ms")}


def _estimate(tasks, best, name, latency):
    """The network's latency, ``best`` being told one of a task; None until each has one."""
    if latency:
        best[name] = min(latency, best.get(name, latency))
    return sum(task["count"] * best[each] for each, task in tasks.items()) if len(best) == len(tasks) else None


def _drawn(tasks, seed):
    """Tasks with the latencies of one recorded search each, drawn at random; in random order where they are random configurations."""
    rng, found = random.Random(seed), {}
    for name, task in tasks.items():
        latencies = rng.choice(task["latency_ms"])
        others = [each for each in task["latency_ms"] if each is not latencies]
        in_order = latencies if "default_ms" in task else rng.sample(latencies, len(latencies))
        found[name] = {**task, "latency_ms": in_order, "others": others}
    return found


def compare(path, replays, round_size, trials_per_task):
    """Replay one recording, print what comes of it."""
    print(f"{path.name}, {replays} replays, {trials_per_task} trials for each task, rounds of {round_size}")
    ratios = {selection: [] for selection in (*SELECTIONS, FORESEEN, INFORMED)}
    for network, tasks in json.loads(path.read_text()).items():
        tasks = {name: task for name, task in tasks.items() if len(task.get("latency_ms", [[]])[0]) > 1}
        searches = [_drawn(tasks, seed) for seed in range(replays)]
        trials = min(
            trials_per_task * len(tasks), *(sum(len(task["latency_ms"]) for task in each.values()) for each in searches)
        )
        curves = {
            selection: [replay(each, selection, seed, trials, round_size) for seed, each in enumerate(searches)]
            for selection in SELECTIONS
        }
        curves[FORESEEN] = [
            with_hindsight(each, trials, lambda name, number: [each[name]["latency_ms"][number:]]) for each in searches
        ]
        if all("default_ms" in task for task in tasks.values()):  # else a trial's place in a search says nothing
            curves[INFORMED] = [
                with_hindsight(each, trials, lambda name, number: [other[number:] for other in each[name]["others"]])
                for each in searches
            ]
        lowest = [
            sum(task["count"] * min(filter(None, [*task["latency_ms"], task.get("default_ms")])) for task in each.values())
            for each in searches
        ]
        ends = [curve[-1] for curve in curves["gradient"]]
        print(f"\n{network}: {len(tasks)} tasks, {trials} trials")
        print(f"{'':<14}" + "".join(f"{share:>8.0%}" for share in SHARES) + "   trials to what gradient has at the end")
        usual = mean(_needed(curve, end) for curve, end in zip(curves["gradient"], ends))
        for selection, of_selection in curves.items():
            after = []
            for share in SHARES:
                reached = [curve[int(share * trials) - 1] for curve in of_selection]
                known = all(reached)
                after.append(f"{geometric_mean(map(truediv, reached, lowest)):8.3f}" if known else f"{'-':>8}")
            ratios[selection].append(mean(_needed(curve, end) for curve, end in zip(of_selection, ends)) / usual)
            print(f"{selection:<14}" + "".join(after) + f"{ratios[selection][-1]:10.2f} x")
    print("\ntrials over gradient's, mean of the networks")
    for selection, each in ratios.items():
        if each:
            print(f"{selection:<14}{mean(each):8.2f}")


def _needed(curve, end):
    """After how many trials a curve is at its end, or there at last."""
    return next((trials for trials, value in enumerate(curve, 1) if value and value <= end), len(curve))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", nargs="+", metavar="NETWORK")
    parser.add_argument("--trials", type=int, default=48)
    parser.add_argument("--searches", type=int, default=3)
    parser.add_argument("--recording", type=Path, nargs="+", default=[Path(__file__).parent / "recordings" / "tasks_zen5.json"])
    parser.add_argument("--round-size", type=int, default=1)
    parser.add_argument("--replays", type=int, default=40)
    parser.add_argument("--trials-per-task", type=int, default=12)
    args = parser.parse_args()
    if args.record:
        return record(args.record, args.trials, args.searches, args.recording[0])
    for path in args.recording:
        compare(path, args.replays, args.round_size, args.trials_per_task)


if __name__ == "__main__":
    main()
