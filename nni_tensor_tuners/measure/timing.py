"""Timing that two runs agree on."""

import math
import mmap

import numpy as np

HUGE_PAGE = 1 << 21


def place(array):
    """A copy of an array in memory of its own that starts on a 2 MiB boundary, in huge pages where the system grants them.

    Where the allocator happens to put a buffer decides its cache conflicts; placed alike, two runs time alike.
    """
    memory = mmap.mmap(-1, array.nbytes + HUGE_PAGE)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    raw = np.frombuffer(memory, dtype=np.uint8)
    start = -raw.ctypes.data % HUGE_PAGE
    placed = raw[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    placed[...] = array
    return placed


def time_repeatedly(run, limits, best_seconds=None):
    """Time a kernel that has run once already.

    A cheap single run comes first: it sizes the warming up and the repeats, and a kernel ``limits.early_stop`` times slower than the best known
    one (three runs in a row, unless it is slower by far) is not timed any further.

    Parameters
    ----------
    run
        ``run(number, repeat)`` returns ``repeat`` mean times in seconds of ``number`` consecutive runs each.
    limits
        A `Limits`.
    best_seconds
        The best latency known so far, or None.

    Returns
    -------
    dict
        ``latency_ms`` (median over repeats), ``spread`` (their interquartile range / median), ``early_stopped``.
    """
    (first,) = run(1, 1)
    slow = math.inf if best_seconds is None else limits.early_stop * best_seconds
    if slow < first < limits.early_stop * slow:  # it may have been disturbed; a kernel slower still needs no second look
        first = min(first, *run(1, 2))
    if first > slow:
        return {"latency_ms": first * 1e3, "spread": 0.0, "early_stopped": True}
    # Cores that were idle, and a virtual machine's above all, take a tenth of a second to come up to speed.
    if first < limits.warm_seconds:
        first = min(first, *run(math.ceil(limits.warm_seconds / first), 1))
    number = max(1, math.ceil(limits.repeat_seconds / first))
    repeats = min(limits.repeats, max(1, int(limits.timing_seconds / (number * first))))
    median, spread = math.inf, math.inf
    for attempt in range(limits.rounds):
        low, middle, high = np.percentile(run(number, repeats), [25, 50, 75])
        this_spread = float((high - low) / middle)
        median, spread = min((median, spread), (float(middle), this_spread))
        if this_spread <= limits.steady_spread:
            break
        run(number * 2 ** (attempt + 2), 1)  # whoever disturbs may be done by then, and the cores stay warm
    return {"latency_ms": median * 1e3, "spread": spread, "early_stopped": False}
