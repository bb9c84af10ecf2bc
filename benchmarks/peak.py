"""GFLOPS of nothing but multiply-adds in registers, float32, on all usable cores: what no kernel on this CPU exceeds.

usage: peak.py
"""

import ctypes
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from nni_tensor_tuners.tasks.device import find_device, usable_cores

CHAINS, ROUNDS, REPEATS = 12, 20_000_000, 5  # independent sums hide the latency of an addition
SOURCE = f"""
typedef float vector __attribute__((vector_size(WIDTH)));
extern "C" float work(long rounds) {{
    vector x = {{}}, y = {{}}, {", ".join(f"s{i} = {{}}" for i in range(CHAINS))};
    x += 0.5f; y += 1.0f; {" ".join(f"s{i} += {i}.25f;" for i in range(CHAINS))}
    for (long i = 0; i < rounds; ++i) {{ {" ".join(f"s{i} = s{i} * x + y;" for i in range(CHAINS))} }}
    return ({" + ".join(f"s{i}" for i in range(CHAINS))})[0];
}}
"""


def peak():
    """The highest of several measurements, in GFLOPS."""
    width = 64 if "avx512f" in Path("/proc/cpuinfo").read_text(encoding="ascii") else 32
    with tempfile.TemporaryDirectory() as folder:
        library = f"{folder}/peak.so"
        command = ["g++", "-x", "c++", "-", "-O3", "-march=native", "-ffp-contract=fast", "-shared", "-fPIC", "-o", library]
        subprocess.run([*command, f"-DWIDTH={width}"], input=SOURCE, text=True, check=True)
        work = ctypes.CDLL(library).work
    work.argtypes, work.restype = [ctypes.c_long], ctypes.c_float
    cores, best = usable_cores(), float("inf")
    with ThreadPoolExecutor(cores) as pool:  # a call through ctypes lets the other threads run
        for _ in range(REPEATS):
            start = time.perf_counter()
            list(pool.map(work, [ROUNDS] * cores))
            best = min(best, time.perf_counter() - start)
    return cores * ROUNDS * CHAINS * (width // 4) * 2 / best / 1e9


if __name__ == "__main__":
    print(f"{find_device('cpu').name}, {usable_cores()} cores: {peak():.0f} GFLOPS")
