"""Several studies measured in turns: the machine's noise falls on all alike."""

import time


def in_turns(studies, trials, progress, note):
    """Give every study its first trial, then every one its second, and so on, another one coming first each time.

    Parameters
    ----------
    studies
        Key -> `frontends.local.LocalStudy`.
    trials
        Of each, those recorded before included; fewer where its space is used up.
    progress
        A `cli.progress.Progress`. Interrupted, the call returns; the same one goes on from what is recorded.
    note
        Called with a study's key and the record of its trial; returns what to show beside the seconds left.
    """
    running = [(key, study, study.run(trials)) for key, study in studies.items()]
    left = sum(max(0, trials - study.known) for study in studies.values())
    start, measured = time.monotonic(), 0
    try:
        for trial in range(trials):
            first = trial % len(running)
            for key, study, measuring in running[first:] + running[:first]:
                record = next(measuring, None)
                if record is None:
                    continue  # its space is used up
                text = note(key, record)
                if trial >= study.known:
                    measured += 1
                    seconds = (time.monotonic() - start) / measured * (left - measured)
                    progress.show(f"{text}, {seconds:.0f} s left")
    except KeyboardInterrupt:
        progress.say("interrupted; the same command goes on from here")
