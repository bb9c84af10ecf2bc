"""Starting workers: this process's keeper forks them.

The keeper is started with the first of them, and again where Python would import from elsewhere.
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from dataclasses import asdict

_keepers = {}  # what decides where Python imports from -> the keeper, one at most, as each has TVM in memory
_one_at_a_time = threading.Lock()


def start_worker(device, environment):
    """Start a worker: a process that waits for its job, in a group of its own.

    Parameters
    ----------
    device
        A `Device`; TVM is not imported while another process times there.
    environment
        The environment variables that the job will have.

    Returns
    -------
    _Forked
        What it has of `subprocess.Popen`: ``pid``, ``stdin``, ``stdout``, ``wait()``, a context.

    Raises
    ------
    OSError
        If none could be started.
    """
    imports = environment.get("PYTHONPATH"), os.getcwd()
    with _one_at_a_time:
        for attempt in range(2):
            if imports not in _keepers:
                while _keepers:
                    _keepers.popitem()[1].close()
                _keepers[imports] = _Keeper(device, environment)
            try:
                return _keepers[imports].start()
            except OSError:  # somebody killed it
                _keepers.pop(imports).close()
                if attempt:
                    raise


class _Keeper:
    """The keeper, running; it ends with the process that started it, and its workers with it.

    Parameters
    ----------
    device
        A `Device`; it is not imported while another process times there.
    environment
        The environment variables of the keeper.
    """

    def __init__(self, device, environment):
        self._connection, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-m", "nni_tensor_tuners.measure.keeper", json.dumps(asdict(device))]
            # A session of its own: Ctrl-C is for the process that measures, which ends its workers itself.
            self._process = subprocess.Popen(command, stdin=theirs, env=environment, start_new_session=True)

    def close(self):
        """End it and its workers."""
        self._connection.close()
        self._process.wait()

    def start(self):
        """Have a worker forked.

        Returns
        -------
        _Forked
            The worker.

        Raises
        ------
        OSError
            If the keeper is gone.
        """
        job, answers, fate = os.pipe(), os.pipe(), os.pipe()
        theirs = job[0], answers[1], fate[1]
        try:
            socket.send_fds(self._connection, [b"fork"], [*theirs, 2])
        except OSError:
            for end in (job[1], answers[0], fate[0]):
                os.close(end)
            raise
        finally:
            for end in theirs:
                os.close(end)
        forked = _Forked(job[1], answers[0], fate[0])
        if not forked.pid:
            forked.close()
            raise BrokenPipeError("the keeper is gone")
        return forked


class _Forked:
    """A worker that the keeper forked; ``pid`` is 0 if it did not."""

    def __init__(self, stdin, stdout, fate):
        self.stdin, self.stdout = open(stdin, "wb"), open(stdout, "rb", buffering=0)
        self._fate = open(fate, encoding="ascii")
        self.pid = int(self._fate.readline() or 0)

    def wait(self):
        """Its exit status, or the negative number of the signal that ended it, once it has ended; 1 where the keeper has."""
        return int(self._fate.readline() or 1)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        for file in (self.stdin, self.stdout, self._fate):
            with contextlib.suppress(BrokenPipeError):  # what was not written yet
                file.close()
