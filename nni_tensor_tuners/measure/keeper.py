"""The process that imports TVM once and forks the workers: importing takes a second or two, forking some milliseconds.

Nothing of TVM runs in it, so each worker starts as a fresh process does: no threads of TVM's, no device in use. `workers` starts it,
with a connection to who asks for workers, or with a socket that several connect to.
"""

import contextlib
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import sys
import traceback

from ..tasks.device import Device
from . import worker
from .lock import DeviceLock, keepers_lock, only_one
from .workers import LENGTH_BYTES


def main():
    """Arguments: the device as JSON and, with a socket to listen on, its path and how many seconds without a connection end it."""
    endpoint = socket.socket(fileno=os.dup(0))
    device = Device(**json.loads(sys.argv[1]))
    # TVM imports PyTorch where that is installed, and asks it for a GPU: CUDA would start here, and work in no process forked later.
    sys.modules["torch"] = None
    keeper = _Keeper(device)
    keeper.load([f"{__package__}.{name}" for name in ("build", "cores", "reference", "timing")])
    del sys.modules["torch"]  # an operator's own reference may want it
    signal.signal(signal.SIGCHLD, keeper.reap)
    if len(sys.argv) > 2:
        keeper.listen(endpoint, float(sys.argv[3]))
        with only_one(keepers_lock()):
            with contextlib.suppress(FileNotFoundError):  # somebody has tidied up
                os.unlink(sys.argv[2])
            endpoint.close()
    else:
        keeper.serve(endpoint)


class _Keeper:
    def __init__(self, device):
        self._device = device
        self._workers = {}  # process id -> (where its end is told, the connection it was asked for over)
        self._ends = selectors.PollSelector()  # with no file of its own, which workers would share

    def load(self, names):
        """Import modules that were not yet."""
        if missing := [name for name in names if name not in sys.modules]:
            # The workers meet what goes wrong, and report it.
            with contextlib.suppress(Exception), DeviceLock(self._device).shared():
                for name in missing:
                    importlib.import_module(name)
            gc.collect()
            gc.freeze()  # else the workers copy the pages in which garbage collection counts

    def listen(self, endpoint, idle_seconds):
        """Fork workers for all who connect, until nobody has been connected for so long."""
        self._ends.register(endpoint, selectors.EVENT_READ)
        while ready := self._ends.select(None if len(self._ends.get_map()) > 1 else idle_seconds):
            for key, _ in ready:
                if key.fileobj is endpoint:
                    self._ends.register(endpoint.accept()[0], selectors.EVENT_READ)
                elif not self._fork(key.fileobj):
                    self._close(key.fileobj)

    def serve(self, connection):
        """Fork workers until the connection ends."""
        self._ends.register(connection, selectors.EVENT_READ)
        asked = True
        while asked:
            asked = self._fork(connection)
        self._close(connection)

    def reap(self, *_):
        for pid in list(self._workers):
            try:
                ended, status = os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:  # a signal came in between, and this one was told of
                continue
            if ended:
                fate, _ = self._workers.pop(pid)
                with contextlib.suppress(BrokenPipeError):  # nobody wants to know
                    os.write(fate, b"%d\n" % os.waitstatus_to_exitcode(status))
                os.close(fate)

    def _fork(self, connection):
        """Whether another worker was asked for."""
        try:
            length, received, *_ = socket.recv_fds(connection, LENGTH_BYTES, 4)
            if not length:
                return False
            names = connection.recv(int.from_bytes(length, "little"), socket.MSG_WAITALL)
            self.load(json.loads(names))
        except (ConnectionResetError, ValueError):  # whoever asked died, after it had asked or while it did
            return False
        *streams, fate, errors = received
        pid = os.fork()
        if not pid:
            for key in list(self._ends.get_map().values()):
                key.fileobj.close()
            for other, _ in self._workers.values():
                os.close(other)
            _work([*streams, errors], fate)
        for end in (*streams, errors):
            os.close(end)
        self._workers[pid] = fate, connection
        self.reap()  # it may have ended before it was entered
        return True

    def _close(self, connection):
        """End the workers that were asked for over a connection."""
        self._ends.unregister(connection)
        connection.close()
        for pid, (_, asked_over) in list(self._workers.items()):
            if asked_over is connection:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)


def _work(streams, fate):
    """What a forked process does; does not return."""
    status = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()  # a group of its own, so that compilers it starts end with it
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        os.write(fate, b"%d\n" % os.getpid())
        os.close(fate)
        worker.main()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


if __name__ == "__main__":
    main()
