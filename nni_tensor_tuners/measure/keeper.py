"""The process that imports TVM once and forks the workers: importing takes a second or two, forking some milliseconds.

Nothing of TVM runs in it, so each worker starts as a fresh process does: no threads of TVM's, no device in use. `workers` starts it.
"""

import contextlib
import gc
import json
import os
import signal
import socket
import sys
import traceback

from ..tasks.device import Device
from . import worker
from .lock import DeviceLock


def main():
    connection = socket.socket(fileno=os.dup(0))
    device = Device(**json.loads(sys.argv[1]))
    with contextlib.suppress(Exception), DeviceLock(device).shared():  # the workers meet what goes wrong, and report it
        from . import build, cores, reference, timing  # noqa: F401
    gc.collect()
    gc.freeze()  # else the workers copy the pages in which garbage collection counts
    fates = {}  # process id -> where its end is told

    def reap(*_):
        for pid in list(fates):
            try:
                ended, status = os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:  # a signal came in between, and this one was told of
                continue
            if ended:
                fate = fates.pop(pid)
                with contextlib.suppress(BrokenPipeError):  # nobody wants to know
                    os.write(fate, b"%d\n" % os.waitstatus_to_exitcode(status))
                os.close(fate)

    signal.signal(signal.SIGCHLD, reap)
    while True:
        request, received, *_ = socket.recv_fds(connection, 4, 4)
        if not request:
            break
        *streams, fate, errors = received
        pid = os.fork()
        if not pid:
            connection.close()
            for other in fates.values():
                os.close(other)
            _work([*streams, errors], fate)
        for end in (*streams, errors):
            os.close(end)
        fates[pid] = fate
        reap()  # it may have ended before it was entered
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for pid in fates:
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
