"""Recording a space: all of its configurations, or random ones, measured once, so that searches can be replayed on them."""

import itertools
import time
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait

from ..measure import measure
from ..search import create_search
from ..space import SearchSpace
from ..study import Objective, Study, records


def record(task, device, constraints, seed, trials, compilers, path, progress, minutes=None):
    """Measure random configurations of a task, each once, until there are so many records, or all.

    Every trial is recorded as it ends; the same call goes on where an interrupted one stopped.

    Parameters
    ----------
    task, device, constraints
        What is measured, and where; constraints beyond the device's.
    seed
        Of the order in which configurations are drawn.
    trials
        How many records there are to be; None for all configurations.
    compilers
        So many trials at a time; they compile side by side, and take turns on the device.
    path
        The records file.
    progress
        A `cli.progress.Progress`.
    minutes
        After which this call begins no further trial; None for no limit.

    Returns
    -------
    (list, bool)
        The records, and whether every configuration is among them. Interrupted, what there is.

    Raises
    ------
    ValueError
        If the file has records of something else, or no configuration satisfies the constraints.
    """
    space = SearchSpace.from_json(task.search_space(device), [*task.constraints(device), *constraints])
    study = Study(create_search("Random", space, seed=seed), settle=task.settler(device))
    objective, place = Objective(task.optimize_mode), {"workload": task.to_dict(), "device": device.label()}
    found = records.read(path)
    if len(records.by_task([*found, place])) > 1 or not all(space.contains(each.get("config")) for each in found):
        raise ValueError(f"{path}: it holds the records of something else; name another folder")
    study.warm_start(records.history(found, objective, task.config_of))
    known, start, running, ids = len(found), time.monotonic(), {}, itertools.count()

    def trial(config):
        began = time.perf_counter()
        measured = measure(task, config, device, best_latency_ms=min(_latencies(found), default=None))
        seconds = time.perf_counter() - began
        return {"task": task.id, "config": config, **measured, "trial_seconds": seconds, **place}

    def gather(return_when):
        for done in wait(running, return_when=return_when).done:
            found.append(done.result())
            records.append(path, found[-1])
            study.tell(running.pop(done), objective.of_record(found[-1]), found[-1])

    pool, exhausted = ThreadPoolExecutor(compilers), False
    try:
        while not exhausted and (trials is None or len(found) < trials):
            if minutes is not None and time.monotonic() - start > 60 * minutes:
                break
            while len(running) < compilers and (trials is None or len(found) + len(running) < trials):
                number = next(ids)
                configs = study.ask([number])
                if not configs:
                    exhausted = True
                    break
                running[pool.submit(trial, configs[0])] = number
            if running:
                gather(FIRST_COMPLETED)
            progress.show(_line(found, trials, space, time.monotonic() - start, known, minutes))
    except KeyboardInterrupt:
        progress.say("interrupted; the same command goes on from here")
    finally:
        while running:
            gather(FIRST_COMPLETED)
        pool.shutdown()
    return found, exhausted


def _latencies(found):
    return (each["latency_ms"] for each in found if records.succeeded(each))


def _line(found, trials, space, seconds, known, minutes):
    failed, best = sum(not records.succeeded(each) for each in found), records.best(found)
    total = trials if trials is not None else f"at most {space.size}"
    text = f"{len(found)} of {total} configurations, {failed} failed" + (f", best {best['tflops']:.4g} TFLOPS" if best else "")
    limits = [] if minutes is None else [max(0.0, 60 * minutes - seconds)]
    if trials is not None and len(found) > known:
        limits.append(seconds / (len(found) - known) * (trials - len(found)))
    return f"{text}, {min(limits):.0f} s left" if limits else text
