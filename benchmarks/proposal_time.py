"""How long a search takes to propose one configuration of MM1's space, as its history grows; how long a huge space takes.

A search that takes a source of transfer is timed without and with one (+), as many random configurations as it learns from.

usage: proposal_time.py [SEARCH...]      default: all of them
       proposal_time.py --program PROGRAM [SEARCH...]

With a program it is the time of a batch of 16 configurations of TVM's sketches, by searches that see programs: features included.
"""

import math
import platform
import random
import sys
import time
from functools import partial
from statistics import mean

from nni_tensor_tuners import SearchSpace, create_search
from nni_tensor_tuners.search import SEARCHES
from nni_tensor_tuners.study import Study
from nni_tensor_tuners.tasks import get_task
from nni_tensor_tuners.tasks.device import GENERIC, find_device, usable_cores
from nni_tensor_tuners.tasks.program import Program

MARKS = (100, 500, 2000)  # numbers of trials
WINDOW = 100  # trials before a mark that count: a model that chooses batches works once per batch
SOURCE = 500  # configurations
# With a program: configurations in a batch, trials before the mark that count, searches and their arguments.
BATCH, BEFORE = 16, 128
SEEING = {"WalkGP": {}, "AutoTVM": {"features": "relation", "batch_size": BATCH}}


def planted(config, noise):
    """A landscape with a slope to climb, and noise so that the parents keep changing."""
    return math.exp(-sum(abs(math.log2(f) - 2) for f in (*config["X"], *config["Y"], *config["K"])) / 4 + noise.random())


def milliseconds(search):
    """Mean time of ask(1) and tell, in ms, over the window before each mark."""
    noise, study, spent = random.Random(0), Study(search), {0: 0.0}
    for trial in study.run(lambda config: (planted(config, noise), None), max(MARKS)):
        spent[trial.id + 1] = study.seconds
    return [(spent[mark] - spent[mark - WINDOW]) / WINDOW * 1e3 for mark in MARKS if mark in spent]


def seconds_of_batches(text, name, trials=500):
    """Seconds that each batch took to be proposed and told, of the last before so many trials."""
    device, task = find_device("cpu"), Program(text)
    space = SearchSpace.from_json(task.search_space(device), task.constraints(device))
    search, describe = create_search(name, space, seed=0, **SEEING[name]), partial(task.describer, device)
    study = Study(search, settle=task.settler(device), first=task.first(device), describe=describe)
    noise, taken = random.Random(0), []
    while len(taken) * BATCH < trials:
        start, first = time.perf_counter(), len(taken) * BATCH
        for trial, config in enumerate(study.ask(range(first, first + BATCH)), first):
            study.tell(trial, planted_in(config, noise), config=config)
        taken.append(time.perf_counter() - start)
    return taken[-BEFORE // BATCH :]


def planted_in(config, noise):
    """As `planted`, in a space of sketches: the nearer the factors to 4, the better."""
    factors = [factor for value in config["sketch"].values() if isinstance(value, list) for factor in value]
    return math.exp(-sum(abs(math.log2(factor) - 2) for factor in factors) / 20 + noise.random() / 10)


def of_program(text, names):
    print(
        f"{find_device('cpu').name}, {usable_cores()} cores; seconds per batch of {BATCH} of {text}, before trial 500: mean, most"
    )
    for name in names or SEEING:
        taken = seconds_of_batches(text, name)
        print(f"{name:<8}{mean(taken):10.2f}{max(taken):10.2f}", flush=True)


def main():
    if sys.argv[1:2] == ["--program"]:
        return of_program(sys.argv[2], sys.argv[3:])
    task = get_task("mm1")
    print(f"{find_device('cpu').name}, Python {platform.python_version()}; ms per proposal (ask and tell), MM1")
    print(f"mean over the {WINDOW} proposals before trial")
    print("search  constraints " + "".join(f"{mark:>10}" for mark in MARKS))
    for name in sys.argv[1:] or SEARCHES:
        for kind, device in GENERIC.items():
            space = SearchSpace.from_json(task.search_space(device), task.constraints(device))
            for with_source in (False, True) if SEARCHES[name].transfers else (False,):
                search, rng = create_search(name, space, seed=0), random.Random(1)
                if with_source:
                    configs = [space.sample(rng) for _ in range(SOURCE)]
                    search.transfer([[(config, planted(config, rng)) for config in configs]])
                taken = "".join(f"{each:10.4f}" for each in milliseconds(search))
                print(f"{name + '+' * with_source:<8}{kind:<12}{taken}", flush=True)
    start = time.perf_counter()
    space = SearchSpace.from_json({"X": {"_type": "factor", "_value": [2**40, 6]}})
    space.sample(random.Random(0))
    spent = (time.perf_counter() - start) * 1e3
    print(f"a factor space of 2^40 in 6 parts ({space.size} values): built and sampled in {spent:.2f} ms")


if __name__ == "__main__":
    main()
