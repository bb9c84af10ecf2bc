"""TVM's sketches of the papers' programs: how many, beside Bansor's table I (of a CPU), and what random configurations are.

usage: sketch_counts.py [PROGRAM ...] [--device cpu|sm_90]

Of 200 random configurations the share that TVM builds with another location than asked for, that cannot be built, and whose kernel
is that of an earlier one; and milliseconds to find out (`Task.settler`), which costs no trial.
"""

import argparse
import random
import time
from dataclasses import replace

from nni_tensor_tuners import SearchSpace
from nni_tensor_tuners.tasks.device import GENERIC, find_device, limits_of
from nni_tensor_tuners.tasks.program import PROGRAMS, Program, sketches
from nni_tensor_tuners.tasks.target import target_of

TABLE_I = {**dict.fromkeys("c1d c2d c3d gmm grp dil dep t2d cap nrm".split(), "3"), "tbs": "27"}
DRAWN = 200


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("programs", nargs="*", default=PROGRAMS, metavar="PROGRAM")
    parser.add_argument("--device", default="cpu", help="cpu, or a GPU's compute capability such as sm_90 (default: cpu)")
    args = parser.parse_args()
    if args.device == "cpu":
        device = find_device("cpu")
    else:
        device = replace(GENERIC["cuda"], name=args.device, arch=args.device, **limits_of(args.device))
    of_cpu = TABLE_I if args.device == "cpu" else {}
    print(f"{device.name}\n{'':<16}sketches  table I{'configurations':>28}   moved  refused  double  ms each")
    for name in args.programs:
        task = Program(f"{name}()" if name == "matmul" else name)
        made = [sketch for sketch in task.sketches(device) if "trace" in sketch]  # TVM's, not our template
        space = SearchSpace.from_json(sketches.search_space(made), sketches.constraints(made))
        rng, settle = random.Random(0), sketches.settler(task.source, made, target_of(device))
        drawn = [space.sample(rng) for _ in range(DRAWN)]
        start = time.perf_counter()
        settled = [settle(config) for config in drawn]
        spent = (time.perf_counter() - start) / DRAWN * 1e3
        refused = settled.count(None)
        moved = sum(sketches.schedule(task.source, made, c, target_of(device))[1] != c for c, s in zip(drawn, settled) if s)
        distinct = len({repr(config) for config in settled if config})
        print(
            f"{name:<16}{len(made):8}{of_cpu.get(name, '-'):>9}{space.size:28,}{moved / DRAWN:8.0%}{refused / DRAWN:9.0%}"
            f"{(DRAWN - refused - distinct) / DRAWN:8.0%}{spent:9.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
