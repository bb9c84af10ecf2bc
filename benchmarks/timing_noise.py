"""How much timings of one configuration vary: TFLOPS of three good ones of a product of 1024 x 1024 x 1024, measured in turns.

usage: timing_noise.py [TURNS]      default: 32, a minute and a half
"""

import sys
import time
from statistics import median

import numpy as np
from autotvm import MATMUL, task_named

from nni_tensor_tuners.measure import measure
from nni_tensor_tuners.tasks.device import find_device, usable_cores

TILES = [
    {"X": [1, 1, 128, 8], "Y": [8, 2, 4, 16], "K": [1, 1024, 1]},
    {"X": [1, 1, 128, 8], "Y": [4, 4, 4, 16], "K": [4, 256, 1]},
    {"X": [1, 2, 64, 8], "Y": [4, 16, 1, 16], "K": [8, 128, 1]},
]
PERCENTILES = (0, 10, 50, 90, 100)


def main(turns):
    device, task = find_device("cpu"), task_named(MATMUL, "sketches")
    found, seconds = [[] for _ in TILES], []
    for _ in range(turns):
        for tiles, tflops in zip(TILES, found):
            start = time.perf_counter()
            measured = measure(task, {"sketch": {"_name": "template of matmul", **tiles}}, device)
            seconds.append(time.perf_counter() - start)
            tflops.append(measured["tflops"])
    print(f"{device.name}, {usable_cores()} cores; TFLOPS, percentiles of {turns} measurements, {median(seconds):.2f} s each")
    print("".join(f"{each:>8}" for each in PERCENTILES) + "   between the 10th and the 90th")
    for tflops in found:
        values = np.percentile(tflops, PERCENTILES)
        spread = (values[3] - values[1]) / values[2]
        print("".join(f"{each:8.4f}" for each in values) + f"{spread:8.1%}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 32)
