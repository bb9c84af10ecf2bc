"""Replaying searches on recorded landscapes, many seeds side by side."""

import functools
import signal
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import suppress
from pathlib import Path

from ..search import create_search
from ..study import Study
from . import landscape


def replay(recording, name, class_args, seed, trials, batch=1, histories=()):
    """Run a search on a landscape.

    Parameters
    ----------
    recording
        A `Landscape`.
    name, class_args, seed
        The search, as for `create_search`.
    trials
        At most this many; a failed one counts like any other.
    batch
        So many are asked for at a time; none of them is told before all have been asked.
    histories
        What the search is given of other landscapes, as for `Search.transfer`.

    Returns
    -------
    dict
        A run, see `summary`, without its ``search``; ``best`` as a fraction of the optimum.
    """
    start = time.perf_counter()
    search = create_search(name, recording.space, seed=seed, **class_args)
    if histories:
        search.transfer(histories)
    created = time.perf_counter() - start
    study = Study(search)
    best, failed, optimum = [], 0, recording.optimum
    for trial in study.run(lambda config: (recording.fitness[recording.space.point(config)], None), trials, batch):
        failed += trial.fitness is None
        best.append(max(best[-1] if best else 0.0, (trial.fitness or 0.0) / optimum))
    return {
        "where": recording.name,
        "seed": seed,
        "best": best,
        "failed": failed,
        "seconds": created + study.seconds,
        "longest": max(created, study.longest),
    }


def replay_all(sources, searches, seeds, trials, batch, jobs, done):
    """Run every search with every seed on every landscape, in ``jobs`` processes.

    Parameters
    ----------
    sources
        Paths, as for `landscape.load`.
    searches
        label -> (name, class_args).
    seeds, trials, batch, jobs
        Numbers.
    done
        Called with (run, how many are done, how many there are) as each run ends.

    Returns
    -------
    tuple
        The runs, by landscape, search and seed, and how many there should be. Interrupted, it returns the runs that have ended,
        and raises nothing.
    """
    places = _places(sources)
    # Seed by seed, so that every search has got equally far when it is interrupted.
    work = [(where, label, seed) for seed in range(seeds) for where in places for label in searches]
    runs = {}
    # SIGTERM ends it as Ctrl-C does; left alone, the processes would outlive this one.
    before = {each: signal.signal(each, signal.default_int_handler) for each in (signal.SIGINT, signal.SIGTERM)}
    pool = ProcessPoolExecutor(jobs, initializer=_leave_signals_to_parent)
    try:
        with suppress(KeyboardInterrupt):  # the runs that have ended by then are the answer
            futures = {
                pool.submit(_replay_one, *places[where], *searches[label], seed, trials, batch): (where, label, seed)
                for where, label, seed in work
            }
            for future in as_completed(futures):
                where, label, seed = futures[future]
                runs[where, label, seed] = {**future.result(), "where": where, "search": label}
                done(runs[where, label, seed], len(runs), len(work))
    finally:
        for each in before:  # a second Ctrl-C has nothing to hurry: what is running takes a second or two
            signal.signal(each, signal.SIG_IGN)
        pool.shutdown(cancel_futures=True)
        for each, handler in before.items():
            signal.signal(each, handler)
    orders = [{key: i for i, key in enumerate(keys)} for keys in (places, searches)]
    return [runs[key] for key in sorted(runs, key=lambda key: (orders[0][key[0]], orders[1][key[1]], key[2]))], len(work)


def _places(sources):
    """What each landscape is called, and the (source, name) to find it by; its folder is put before a name that occurs twice."""
    found = [(source, recording.name) for source in dict.fromkeys(sources) for recording in _load(source)]
    counts = Counter(name for _, name in found)
    return {
        name if counts[name] == 1 else f"{Path(source).resolve().parent.name}/{name}": (source, name) for source, name in found
    }


def _replay_one(source, where, name, class_args, seed, trials, batch):
    recording = next(recording for recording in _load(source) if recording.name == where)
    return replay(recording, name, class_args, seed, trials, batch)


@functools.cache  # each process reads a recording once
def _load(source):
    return landscape.load(source)


def _leave_signals_to_parent():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
