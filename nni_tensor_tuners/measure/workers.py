"""Starting workers: a keeper forks them, this process's own one, or one that it shares with others.

The keeper is started with the first of them, and again where Python would import from elsewhere.
"""

import contextlib
import hashlib
import json
import os
import socket
import subprocess
import sys
import threading
from dataclasses import asdict

from ..tasks.shared import shared_folder
from .lock import keepers_lock, only_one

# A request for a worker is a list of modules in JSON, so many bytes that say how long it is before it.
LENGTH_BYTES = 4
# A keeper that several processes share ends when none of them has been there for so long.
IDLE_SECONDS = 10.0

_shared_by = None  # what the processes have in common whose keeper is one
_keepers = {}  # what decides where Python imports from -> the keeper, one at most, as each has TVM in memory
_one_at_a_time = threading.Lock()


def share_keeper(name):
    """Have all processes that give this name, such as the trials of an experiment, share one keeper: TVM is imported once."""
    global _shared_by
    _shared_by = name


def start_worker(device, environment, imports=()):
    """Start a worker: a process that waits for its job, in a group of its own.

    Parameters
    ----------
    device
        A `Device`; TVM is not imported while another process times there.
    environment
        The environment variables that the job will have.
    imports
        Names of modules that the worker begins with, imported once as TVM is.

    Returns
    -------
    _Forked
        What it has of `subprocess.Popen`: ``pid``, ``stdin``, ``stdout``, ``wait()``, a context.

    Raises
    ------
    OSError
        If none could be started.
    """
    places = environment.get("PYTHONPATH"), os.getcwd()
    with _one_at_a_time:
        for attempt in range(2):
            if places not in _keepers:
                while _keepers:
                    _keepers.popitem()[1].close()
                _keepers[places] = _keeper(device, environment)
            try:
                return _keepers[places].start(imports)
            except OSError:  # somebody killed it
                _keepers.pop(places).close()
                if attempt:
                    raise


def _keeper(device, environment):
    if _shared_by is not None:
        with contextlib.suppress(OSError):  # the name of the folder is too long for a socket's
            return _Keeper(_shared_connection(_shared_by, device, environment))
    ours, theirs = socket.socketpair()
    with theirs:
        return _Keeper(ours, _start_keeper(theirs, device, environment))


def _shared_connection(name, device, environment):
    """A connection to the keeper that processes share by this name, which is started if there is none."""
    imports = sys.executable, environment.get("PYTHONPATH"), os.getcwd()
    path = shared_folder() / f"keeper-{hashlib.sha256(repr((name, imports)).encode()).hexdigest()[:12]}.socket"
    connection = socket.socket(socket.AF_UNIX)
    try:
        with only_one(keepers_lock()):
            try:
                connection.connect(str(path))
            except (FileNotFoundError, ConnectionRefusedError):
                path.unlink(missing_ok=True)
                with socket.socket(socket.AF_UNIX) as listening:
                    listening.bind(str(path))
                    listening.listen()
                    _start_keeper(listening, device, environment, str(path), str(IDLE_SECONDS))
                connection.connect(str(path))
    except BaseException:
        connection.close()
        raise
    return connection


def _start_keeper(endpoint, device, environment, *arguments):
    command = [sys.executable, "-m", "nni_tensor_tuners.measure.keeper", json.dumps(asdict(device)), *arguments]
    # It outlives a process that shares it; what that one's readers wait for the end of is not for it to hold open.
    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL} if arguments else {}
    # A session of its own: Ctrl-C is for the process that measures, which ends its workers itself.
    return subprocess.Popen(command, stdin=endpoint, env=environment, start_new_session=True, **streams)


class _Keeper:
    """A running keeper; its workers end when the connection does, and so does a ``process`` that is this one's own."""

    def __init__(self, connection, process=None):
        self._connection, self._process = connection, process

    def close(self):
        """End the workers, and the keeper if it is this process's own."""
        self._connection.close()
        if self._process is not None:
            self._process.wait()

    def start(self, imports):
        """Have a worker forked, these modules imported.

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
            names = json.dumps(imports).encode()
            socket.send_fds(self._connection, [len(names).to_bytes(LENGTH_BYTES, "little")], [*theirs, 2])
            self._connection.sendall(names)
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
