"""Whether the cores are as many as they seem: a virtual machine's are at times run on the two threads of one core for a second.

Kernels then take twice as long, steadily, and no repeat tells.
"""

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

# Cores of their own are together at least this much as fast as one alone; two threads of a core are somewhat more than half.
APART = 0.65
SIZE, PRODUCTS = 384, 5
# So often at most is looked at one core, and at all: TVM's threads keep a core half busy for some 60 ms after a kernel.
ALONE, TOGETHER = 2, 20
TOPOLOGY = Path("/sys/devices/system/cpu")


def disturbed():
    """Whether the cores this process may run on share one now, and usually do not."""
    cores = sorted(os.sched_getaffinity(0))
    return could_share(cores) and share(cores)


def share(cores):
    """Whether work on all of these cores (their numbers) takes far longer, each time, than on the faster of the first and the last.

    Some 70 ms to find out that it does not, a quarter of a second that it does.
    """
    x = np.ones((SIZE, SIZE), dtype=np.float32)

    def seconds(cores):
        started = []
        ready = threading.Barrier(len(cores), action=lambda: started.append(time.perf_counter()))

        def work(core):
            os.sched_setaffinity(0, {core})  # of this thread
            out = np.zeros_like(x)
            ready.wait()
            for _ in range(PRODUCTS):
                np.dot(x, x, out=out)
            return time.perf_counter() - started[0]

        with ThreadPoolExecutor(len(cores)) as pool:
            return max(pool.map(work, cores))

    with threadpool_limits(1, user_api="blas"):
        alone = min(seconds([core]) for core in (cores[0], cores[-1]) for _ in range(ALONE))
        return all(alone < APART * seconds(cores) for _ in range(TOGETHER))


def could_share(cores, topology=TOPOLOGY):
    """Whether sharing would be an exception: there are several cores, and the system says that none is another one's thread."""
    try:
        of = {core: _numbers((topology / f"cpu{core}/topology/thread_siblings_list").read_text()) for core in cores}
    except OSError:
        return False
    return len(cores) > 1 and all(of[core] & set(cores) == {core} for core in cores)


def _numbers(text):
    """{0, 1, 4} of "0-1,4"."""
    ends = [[int(end) for end in part.split("-")] for part in text.strip().split(",")]
    return {number for part in ends for number in range(part[0], part[-1] + 1)}
