"""Several studies measured in turns: the machine's noise falls on all alike."""

import itertools
import math
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager


def in_turns(studies, trials, progress, note, left=lambda key: None, compilers=1):
    """Give every study its first trial, then every one its second, and so on, another one coming first each time.

    Parameters
    ----------
    studies
        Key -> `frontends.local.LocalStudy`.
    trials
        Of each, those recorded before included; fewer where its space is used up. None for no limit.
    progress
        A `cli.progress.Progress`. Interrupted, the call returns; the same one goes on from what is recorded.
    note
        Called with a study's key and the record of its trial; returns what to show beside the seconds left.
    left
        Called with a study's key: seconds that it has left, at 0 it gets no further trial; None for no limit.
    compilers
        So many studies have their trials at a time: they build side by side, and one of them at a time is timed.
    """
    running = [(key, study, study.run(sys.maxsize if trials is None else trials)) for key, study in studies.items()]
    start, measured = time.monotonic(), 0
    try:
        with _mapped(compilers) as mapped:
            for trial in itertools.count():
                running = [each for each in running if left(each[0]) != 0]
                if not running:
                    return
                first = trial % len(running)
                used_up = []
                turns = running[first:] + running[:first]
                for each, record in zip(turns, mapped(lambda each: next(each[2], None), turns)):
                    key, study, _ = each
                    if record is None:  # after its last trial, or when its space is used up
                        used_up.append(each)
                        continue
                    text = note(key, record)
                    if trial >= study.known:
                        measured += 1
                        seconds = _seconds_left(running, trial, trials, (time.monotonic() - start) / measured, left)
                        progress.show(f"{text}, {seconds:.0f} s left")
                running = [each for each in running if each not in used_up]
    except KeyboardInterrupt:
        progress.say("interrupted; the same command goes on from here")


@contextmanager
def _mapped(compilers):
    """A `map` that so many threads work on; interrupted, it begins with nothing more, and ends what it has begun with."""
    if compilers == 1:  # an interrupt ends what is running
        yield map
        return
    pool = ThreadPoolExecutor(compilers)
    try:
        yield pool.map
    finally:
        pool.shutdown(cancel_futures=True)


def _seconds_left(running, trial, trials, seconds_each, left):
    """How long it takes until all are over, by the limit that each of them meets first."""
    total = 0.0
    for key, study, _ in running:
        limits = [] if trials is None else [max(0, trials - max(trial + 1, study.known)) * seconds_each]
        limits += [] if left(key) is None else [left(key)]
        total += min(limits, default=math.inf)
    return total
