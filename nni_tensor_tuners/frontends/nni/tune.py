"""The main job from start to end: check, start through nnictl, watch, stop, report, export."""

import signal
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import yaml

from . import experiment, export, records, report
from .device import usable_cores
from .manager import Manager, register

# The manager answers within milliseconds; this long without an answer means that it is gone.
SILENCE_SECONDS = 15


class Progress:
    """One line that is rewritten on a terminal, and repeated every few seconds elsewhere."""

    def __init__(self, interval=10.0):
        self._stream = sys.stdout
        self._terminal = self._stream.isatty()
        self._interval = interval
        self._last = -interval
        self._width = 0

    def show(self, text):
        """Show the state of things."""
        if self._terminal:
            self._stream.write("\r" + text.ljust(self._width))
            self._width = len(text)
        elif time.monotonic() - self._last >= self._interval:
            self._last = time.monotonic()
            self._stream.write(text + "\n")
        self._stream.flush()

    def say(self, text):
        """Say something that stays."""
        if self._terminal and self._width:
            self._stream.write("\r" + " " * self._width + "\r")
            self._width = 0
        self._stream.write(text + "\n")
        self._stream.flush()


def tune(path, output=None, trials=None, concurrency=None, port=None):
    """Run an experiment file to its end and export the best kernel.

    Parameters
    ----------
    path
        The experiment's YAML.
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
    copy = _with_overrides(Path(path), experiment.check(path), trials, concurrency)
    register()
    return _follow(lambda: Manager.create(copy, port), output)


def resume(experiment_id, output=None, port=None):
    """Go on with a stopped experiment; otherwise as `tune`."""
    return _follow(lambda: Manager.resume(experiment_id, port), output)


def run_to_end(start, progress):
    """Start an experiment and watch it until it ends.

    Parameters
    ----------
    start
        Starts it and returns its `Manager`.
    progress
        A `Progress`.

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


def _follow(start, output):
    """Start an experiment, watch it to its end, then report and export."""
    progress = Progress()
    manager, problem = run_to_end(start, progress)
    found = report.load(manager.folder)
    output = Path(output or Path("runs") / manager.experiment_id)
    output.mkdir(parents=True, exist_ok=True)
    progress.say(report.summary(found))
    progress.say(report.table(found))
    for failure in report.failures(found):
        progress.say(failure)
    report.plot(found, output / "report.png", f"experiment {manager.experiment_id}")
    if problem:
        progress.say(f"error: {problem}")
    finish_export(found, output, progress)
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


def finish_export(found, output, progress, count=4, rounds=3):
    """Time the best records of an experiment again, and export the winner to a folder."""
    ranked, numpy_tflops = export.time_again(export.finalists(found, count), rounds, progress.say)
    best = ranked[0]
    export.write(best, numpy_tflops, output)
    progress.say(
        f"best, timed again: {best['retimed_tflops']:.4g} TFLOPS ({best['retimed_ms']:.4g} ms), "
        f"{best['retimed_tflops'] / numpy_tflops:.2f} x NumPy's {numpy_tflops:.4g} TFLOPS on {usable_cores()} cores"
    )
    progress.say(f"written to {output}: {', '.join(sorted(path.name for path in output.iterdir()))}")


def watch(manager, progress):
    """Show progress until the experiment ends; returns what went wrong, or None."""
    folder, total = manager.folder, manager.max_trials()
    started = answered = time.monotonic()
    while True:
        status = manager.status()
        found = report.load(folder)
        best = records.best(found)
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
    overrides["tuner"] = {**content["tuner"], "classArgs": experiment.resolve_sources(path.parent, class_args)}
    copy = {**content, **{field: value for field, value in overrides.items() if value is not None}}
    target = Path("runs") / f"{path.parent.name}-{path.stem}.yml"
    target.parent.mkdir(exist_ok=True)
    target.write_text(yaml.safe_dump(copy, sort_keys=False), encoding="utf-8")
    return target


def _line(done, total, best, seconds, url):
    left = f"{seconds / done * (total - done):.0f} s left" if done and total else "time left unknown"
    tflops = f"{best['tflops']:.4g} TFLOPS" if best else "none yet"
    return f"{done}/{total or '?'} trials, best {tflops}, {left}, {url}"


def _tuner_error(folder):
    events = records.read(folder / records.JOURNAL)
    return next((event["message"] for event in reversed(events) if event.get("event") == "error"), None)
