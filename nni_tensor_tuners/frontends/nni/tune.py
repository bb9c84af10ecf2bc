"""The main job from start to end: check, start through nnictl, watch, stop, report, export."""

import signal
import time
from contextlib import contextmanager
from pathlib import Path

from ... import report
from ...study import records
from ..network import finish, tell
from .check import check
from .experiment import write
from .folders import resolve_sources
from .manager import Manager, register

# The manager answers within milliseconds; this long without an answer means that it is gone.
SILENCE_SECONDS = 15


def tune(path, progress, output=None, trials=None, concurrency=None, port=None):
    """Run an experiment file to its end and export the best kernel.

    Parameters
    ----------
    path
        The experiment's YAML.
    progress
        With ``show(text)`` for the state of things and ``say(text)`` for what stays, as `cli.progress.Progress`.
    output
        Folder for report and export; default ``runs/<experiment id>``.
    trials, concurrency
        Override maxTrialNumber and trialConcurrency.
    port
        Of the web UI; default the first free one of 8080, 8082 and so on.

    Returns
    -------
    int
        0, or 1 if the experiment ended in an error.

    Raises
    ------
    ValueError, OSError
        If it cannot start, or nothing succeeded.
    KeyboardInterrupt
        After stopping the experiment, when interrupted.
    """
    copy = _with_overrides(Path(path), check(path), trials, concurrency)
    register()
    return _follow(lambda: Manager.create(copy, port), output, progress)


def resume(experiment_id, progress, output=None, port=None):
    """Go on with a stopped experiment; otherwise as `tune`."""
    return _follow(lambda: Manager.resume(experiment_id, port), output, progress)


def run_to_end(start, progress):
    """Start an experiment and watch it until it ends.

    Parameters
    ----------
    start
        Starts it and returns its `Manager`.
    progress
        As for `tune`.

    Returns
    -------
    tuple
        The manager, stopped, and what went wrong, or None.

    Raises
    ------
    KeyboardInterrupt
        After stopping the experiment, when interrupted.
    """
    with _interrupts_noted() as interrupts:
        manager = start()
    try:
        progress.say(f"experiment {manager.experiment_id} started; web UI: {manager.url}")
        if interrupts:
            raise KeyboardInterrupt
        return manager, watch(manager, progress)
    except KeyboardInterrupt:
        progress.say("stopping ...")
        manager.stop()
        progress.say(
            f"stopped; nothing measured is lost. To go on:  tensor-tuners tune --resume {manager.experiment_id}\n"
            f"To export the best so far:  tensor-tuners export {manager.folder}"
        )
        raise
    finally:
        manager.stop()


def _follow(start, output, progress):
    """Start an experiment, watch it to its end, then report and export."""
    manager, problem = run_to_end(start, progress)
    found = report.load(manager.folder)
    output = Path(output or Path("runs") / manager.experiment_id)
    output.mkdir(parents=True, exist_ok=True)
    tell(found, output / "report.png", f"experiment {manager.experiment_id}", progress.say)
    if problem:
        progress.say(f"error: {problem}")
    finish(found, output, progress)
    return 1 if problem else 0


@contextmanager
def _interrupts_noted():
    """Note Ctrl-C and SIGTERM until the experiment is ours to stop; from then on both end it, and leave nothing running."""
    noted = []
    signals = (signal.SIGINT, signal.SIGTERM)
    for each in signals:
        signal.signal(each, lambda *_: noted.append(True))
    try:
        yield noted
    finally:
        for each in signals:
            signal.signal(each, signal.default_int_handler)


def watch(manager, progress):
    """Show progress until the experiment ends; returns what went wrong, or None."""
    folder, total = manager.folder, manager.max_trials()
    started = answered = time.monotonic()
    while True:
        status = manager.status()
        found = report.load(folder)
        estimated = [record for record in found if "estimate_ms" in record]
        best = min(estimated, key=lambda record: record["estimate_ms"]) if estimated else records.best(found)
        progress.show(_line(len(found), total, best, time.monotonic() - started, manager.url))
        if status == "DONE":
            return None
        if status in ("ERROR", "STOPPED"):
            return _tuner_error(folder) or f"NNI reports {status}; its logs are in {folder / 'log'}"
        if status is not None:
            answered = time.monotonic()
        elif time.monotonic() - answered > SILENCE_SECONDS or not manager.is_alive():
            return f"NNI's manager is gone; its logs are in {folder / 'log'}"
        time.sleep(0.5)


def _with_overrides(path, content, trials, concurrency):
    """A copy of an experiment file, in ``runs``, that says what the command line said."""
    overrides = {"maxTrialNumber": trials, "trialConcurrency": concurrency}
    # NNI takes relative paths from the file's own folder, which the copy leaves.
    for field in ("trialCodeDirectory", "searchSpaceFile", "experimentWorkingDirectory"):
        if field in content or field == "trialCodeDirectory":
            overrides[field] = str((path.parent / Path(content.get(field, ".")).expanduser()).resolve())
    class_args = content["tuner"].get("classArgs") or {}
    overrides["tuner"] = {**content["tuner"], "classArgs": resolve_sources(path.parent, class_args)}
    copy = {**content, **{field: value for field, value in overrides.items() if value is not None}}
    target = Path("runs") / f"{path.parent.name}-{path.stem}.yml"
    target.parent.mkdir(exist_ok=True)
    write(target, copy)
    return target


def _line(done, total, best, seconds, url):
    left = f"{seconds / done * (total - done):.0f} s left" if done and total else "time left unknown"
    so_far = f"{best['tflops']:.4g} TFLOPS" if best else "none yet"
    if best and "estimate_ms" in best:
        so_far = f"estimate {best['estimate_ms']:.4g} ms"
    return f"{done}/{total or '?'} trials, best {so_far}, {left}, {url}"


def _tuner_error(folder):
    events = records.read(folder / records.JOURNAL)
    return next((event["message"] for event in reversed(events) if event.get("event") == "error"), None)
