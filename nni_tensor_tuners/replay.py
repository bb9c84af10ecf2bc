"""Replaying searches on recorded landscapes, many seeds side by side."""

import functools
import signal
import time
from concurrent.futures import ProcessPoolExecutor, as_completed

from . import landscape
from .search import Exhausted, create_search


def replay(recording, name, class_args, seed, trials):
    """Run a search on a landscape.

    Parameters
    ----------
    recording
        A `Landscape`.
    name, class_args, seed
        The search, as for `create_search`.
    trials
        At most this many; a failed one counts like any other.

    Returns
    -------
    dict
        A run, see `arena`, without its ``search``; ``best`` as a fraction of the optimum.
    """
    start = time.perf_counter()
    search = create_search(name, recording.space, seed=seed, **class_args)
    spent = longest = time.perf_counter() - start
    best, failed, optimum = [], 0, recording.optimum
    while len(best) < trials:
        start = time.perf_counter()
        try:
            (config,) = search.ask(1)
        except Exhausted:
            break
        asked = time.perf_counter()
        fitness = recording.fitness[recording.space.point(config)]
        told = time.perf_counter()
        search.tell(config, fitness)
        seconds = time.perf_counter() - told + asked - start
        spent, longest = spent + seconds, max(longest, seconds)
        failed += fitness is None
        best.append(max(best[-1] if best else 0.0, (fitness or 0.0) / optimum))
    return {"where": recording.name, "seed": seed, "best": best, "failed": failed, "seconds": spent, "longest": longest}


def replay_all(sources, searches, seeds, trials, jobs, done):
    """Run every search with every seed on every landscape, in ``jobs`` processes.

    Parameters
    ----------
    sources
        Paths, as for `landscape.load`.
    searches
        label -> (name, class_args).
    seeds, trials, jobs
        Numbers.
    done
        Called with (run, how many are done, how many there are) as each run ends.

    Returns
    -------
    tuple
        The runs, by landscape, search and seed, and how many there should be. Interrupted, it returns the runs that have ended,
        and raises nothing.
    """
    names = [(source, recording.name) for source in sources for recording in _load(source)]
    # Seed by seed, so that every search has got equally far when it is interrupted.
    work = [(source, where, label, seed) for seed in range(seeds) for source, where in names for label in searches]
    runs = {}
    with ProcessPoolExecutor(jobs, initializer=_ignore_interrupts) as pool:
        futures = {
            pool.submit(_replay_one, source, where, *searches[label], seed, trials): (source, where, label, seed)
            for source, where, label, seed in work
        }
        try:
            for future in as_completed(futures):
                key = futures[future]
                runs[key] = {**future.result(), "search": key[2]}
                done(runs[key], len(runs), len(work))
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
    order = {label: i for i, label in enumerate(searches)}
    return [runs[key] for key in sorted(runs, key=lambda key: (names.index(key[:2]), order[key[2]], key[3]))], len(work)


def _replay_one(source, where, name, class_args, seed, trials):
    recording = next(recording for recording in _load(source) if recording.name == where)
    return replay(recording, name, class_args, seed, trials)


@functools.cache  # each process reads a recording once
def _load(source):
    return landscape.load(source)


def _ignore_interrupts():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
