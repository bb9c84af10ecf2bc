"""How long a search takes to propose one configuration of MM1's space, as its history grows; how long a huge space takes.

A search that takes a source of transfer is timed without and with one (+), as many random configurations as it learns from.

usage: proposal_time.py [SEARCH...]      default: all of them
"""

import math
import platform
import random
import sys
import time

from nni_tensor_tuners import SearchSpace, create_search
from nni_tensor_tuners.search import SEARCHES
from nni_tensor_tuners.study import Study
from nni_tensor_tuners.tasks import get_task
from nni_tensor_tuners.tasks.device import GENERIC, find_device

MARKS = (100, 500, 2000)  # numbers of trials
WINDOW = 100  # trials before a mark that count: a model that chooses batches works once per batch
SOURCE = 500  # configurations


def planted(config, noise):
    """A landscape with a slope to climb, and noise so that the parents keep changing."""
    return math.exp(-sum(abs(math.log2(f) - 2) for f in (*config["X"], *config["Y"], *config["K"])) / 4 + noise.random())


def milliseconds(search):
    """Mean time of ask(1) and tell, in ms, over the window before each mark."""
    noise, study, spent = random.Random(0), Study(search), {0: 0.0}
    for trial in study.run(lambda config: (planted(config, noise), None), max(MARKS)):
        spent[trial.id + 1] = study.seconds
    return [(spent[mark] - spent[mark - WINDOW]) / WINDOW * 1e3 for mark in MARKS if mark in spent]


def main():
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
                means = milliseconds(search)
                print(f"{name + '+' * with_source:<8}{kind:<12}" + "".join(f"{mean:10.4f}" for mean in means), flush=True)
    start = time.perf_counter()
    space = SearchSpace.from_json({"X": {"_type": "factor", "_value": [2**40, 6]}})
    space.sample(random.Random(0))
    spent = (time.perf_counter() - start) * 1e3
    print(f"a factor space of 2^40 in 6 parts ({space.size} values): built and sampled in {spent:.2f} ms")


if __name__ == "__main__":
    main()
