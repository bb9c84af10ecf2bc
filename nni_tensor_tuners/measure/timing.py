"""Timing that two runs agree on."""

import contextlib
import math
import mmap
import time

import numpy as np

HUGE_PAGE = 1 << 21
# Single runs differ more than means of many do: so many times the spread of those is steady.
COLD_SPREAD = 4
# So many repeats there are however long they take, within a quarter of all time for the device.
LEAST_REPEATS = 3


def place(array):
    """A copy of an array in memory of its own that starts on a 2 MiB boundary, in huge pages where the system grants them.

    Where the allocator happens to put a buffer decides its cache conflicts; placed alike, two runs time alike.
    """
    # Private, because memory that could be shared, mmap's default, is not given huge pages on most systems; whole pages,
    # because an array's tail that has none of its own is scattered over small ones.
    whole = array.nbytes + -array.nbytes % HUGE_PAGE
    memory = mmap.mmap(-1, whole + HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # of a system without them
            memory.madvise(mmap.MADV_HUGEPAGE)
    raw = np.frombuffer(memory, dtype=np.uint8)
    start = -raw.ctypes.data % HUGE_PAGE
    placed = raw[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    placed[...] = array
    return placed


def time_cold(run, limits, best_seconds=None):
    """Time a kernel as a network runs it: once, its weights out of the cache, as the rest of the network has used it since.

    Parameters
    ----------
    run
        ``run(repeat)`` returns ``repeat`` times in seconds of single runs, before each of which the caches have been flushed.
    limits, best_seconds
        As for `time_repeatedly`.

    Returns
    -------
    dict
        As `time_repeatedly`.
    """
    (first,) = run(1)
    if best_seconds is not None and first > limits.early_stop * best_seconds:
        first = min(first, *run(2))
        if first > limits.early_stop * best_seconds:
            return {"latency_ms": first * 1e3, "spread": 0.0, "early_stopped": True}
    best, rounds, began = (math.inf, math.inf), 0, time.perf_counter()
    while time.perf_counter() - began < limits.run_seconds / 4:
        start, times = time.perf_counter(), []
        while not times or time.perf_counter() - start < limits.warm_seconds:
            times += run(limits.repeats)
        low, middle, high = np.percentile(times, [25, 50, 75])
        best = min(best, (float(middle), float((high - low) / middle)))
        rounds += 1
        if best[1] <= COLD_SPREAD * limits.steady_spread or rounds == limits.rounds:
            break
    return {"latency_ms": best[0] * 1e3, "spread": best[1], "early_stopped": False}


def time_repeatedly(run, limits, best_seconds=None, disturbed=None):
    """Time a kernel that has run once already.

    A cheap single run comes first: a kernel ``limits.early_stop`` times slower than the best known one (three runs in a row,
    unless it is slower by far) is not timed any further. The warming up sizes the repeats.

    Parameters
    ----------
    run
        ``run(number, repeat)`` returns ``repeat`` mean times in seconds of ``number`` consecutive runs each.
    limits
        A `Limits`.
    best_seconds
        The best latency known so far, or None.
    disturbed
        Tells whether something disturbs that repeats would not show; asked after each round of them. Or None.

        Given where others use the device, too, which only ever slows a kernel down: then the fastest repeat counts.

    Returns
    -------
    dict
        ``latency_ms`` (of the fastest repeat, or the median), ``spread`` (the repeats' interquartile range / median),
        ``early_stopped``.
    """
    start = time.perf_counter()
    (first,) = run(1, 1)
    slow = math.inf if best_seconds is None else limits.early_stop * best_seconds
    if slow < first < limits.early_stop * slow:  # it may have been disturbed; a kernel slower still needs no second look
        first = min(first, *run(1, 2))
    if first > slow:
        return {"latency_ms": first * 1e3, "spread": 0.0, "early_stopped": True}
    # Cores that were idle, and a virtual machine's above all, take a tenth of a second to come up to speed. They are asked for
    # more by and by: where others have the cores as well, microseconds of a kernel become milliseconds between two runs.
    mean, number, warm = first, 1, first if first >= limits.warm_seconds else 0.0
    while warm < limits.warm_seconds / 2:
        number = min(math.ceil((limits.warm_seconds - warm) / mean), 100 * number)
        (mean,) = run(number, 1)
        warm += number * mean
    number = max(1, math.ceil(limits.repeat_seconds / mean))
    each = number * mean
    least = min(LEAST_REPEATS, int(limits.run_seconds / 4 / each))
    repeats = min(limits.repeats, max(1, least, int(limits.timing_seconds / each)))
    latency, spread = math.inf, math.inf
    for attempt in range(limits.rounds):
        if attempt:  # whoever disturbs may be done by then, and the cores stay warm
            run(max(1, math.ceil(limits.warm_seconds * 2 ** (attempt - 1) / mean)), 1)
        times = run(number, repeats)
        low, middle, high = np.percentile(times, [25, 50, 75])
        this_spread = float((high - low) / middle)
        latency, spread = min((latency, spread), (float(middle) if disturbed is None else min(times), this_spread))
        steady = this_spread <= limits.steady_spread and not (disturbed and disturbed())
        if steady or time.perf_counter() - start > limits.run_seconds / 4:
            break
    return {"latency_ms": latency * 1e3, "spread": spread, "early_stopped": False}
