"""TVM's sketches of the papers' programs on this CPU: how many, beside Bansor's table I, and what random configurations are.

usage: sketch_counts.py [PROGRAM ...]

Of 200 random configurations the share that TVM builds with another location than asked for, that cannot be built, and whose kernel
is that of an earlier one; and milliseconds to find out (`Task.settler`), which costs no trial.
"""

import random
import sys
import time

from nni_tensor_tuners import SearchSpace
from nni_tensor_tuners.tasks.device import find_device
from nni_tensor_tuners.tasks.program import PROGRAMS, Program, sketches
from nni_tensor_tuners.tasks.target import target_of

TABLE_I = {**dict.fromkeys("c1d c2d c3d gmm grp dil dep t2d cap nrm".split(), "3"), "tbs": "27"}
DRAWN = 200


def main():
    device = find_device("cpu")
    print(
        f"{device.name}, {device.cores} cores\n{'':<16}sketches  table I{'configurations':>28}   moved  refused  double  ms each"
    )
    for name in sys.argv[1:] or PROGRAMS:
        task = Program(f"{name}()" if name == "matmul" else name)
        made = task.sketches(device)
        space = SearchSpace.from_json(task.search_space(device), task.constraints(device))
        rng, settle = random.Random(0), task.settler(device)
        drawn = [space.sample(rng) for _ in range(DRAWN)]
        start = time.perf_counter()
        settled = [settle(config) for config in drawn]
        spent = (time.perf_counter() - start) / DRAWN * 1e3
        refused = settled.count(None)
        moved = sum(sketches.schedule(task.source, made, c, target_of(device))[1] != c for c, s in zip(drawn, settled) if s)
        distinct = len({repr(config) for config in settled if config})
        print(
            f"{name:<16}{len(made):8}{TABLE_I.get(name, '-'):>9}{space.size:28,}{moved / DRAWN:8.0%}{refused / DRAWN:9.0%}"
            f"{(DRAWN - refused - distinct) / DRAWN:8.0%}{spent:9.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
