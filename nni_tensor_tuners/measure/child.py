"""What the processes share that are started to do one thing for another one."""

import ctypes
import os
import signal
import sys


def die_with_parent():
    """Have the kernel end this process when the one that started it ends, however that happens (Linux)."""
    set_parent_death_signal = 1  # PR_SET_PDEATHSIG
    parent = os.getppid()
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)
    if os.getppid() != parent:  # it ended in between
        sys.exit(1)


def first_line(error):
    """The line of an error that says what happened: TVM puts the location before it, its RPC a heading, nvcc the source."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip() and not line.endswith("RPC call:")]
    telling = [line for line in lines if "error" in line.lower()]
    return (telling or lines or [type(error).__name__])[0][:500]
