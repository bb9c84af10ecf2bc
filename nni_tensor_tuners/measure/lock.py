"""One trial at a time times on a device; on a CPU, nobody compiles meanwhile either."""

import contextlib
import fcntl

from ..tasks.shared import shared_folder


@contextlib.contextmanager
def only_one(path):
    """Held by one process at a time; ``path`` is a file for it."""
    with open(path, "a", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def keepers_lock():
    """The file for `only_one` that starts or ends a keeper which processes share."""
    return shared_folder() / "keepers.lock"


class DeviceLock:
    """A lock on a device, between all processes of this machine's user; the kernel frees it when its holder dies.

    Compiling takes a share, timing takes the whole. A GPU does not notice compilers, so there sharing is free; on a CPU they
    would be timed along with the kernel.

    Parameters
    ----------
    device
        A `Device`.
    """

    def __init__(self, device):
        folder = shared_folder()
        self._room = folder / f"{device.identity}.lock"
        # Whoever wants in passes the door first, so that a stream of compilers cannot keep a timing waiting for ever.
        self._door = folder / f"{device.identity}.door"
        self._sharing_matters = device.kind == "cpu" and not device.rpc

    @contextlib.contextmanager
    def shared(self):
        """Held while compiling."""
        if not self._sharing_matters:
            yield
            return
        with self._held(fcntl.LOCK_SH):
            yield

    @contextlib.contextmanager
    def exclusive(self):
        """Held while timing."""
        with self._held(fcntl.LOCK_EX):
            yield

    @contextlib.contextmanager
    def _held(self, mode):
        with open(self._room, "a", encoding="utf-8") as room:
            with only_one(self._door):
                fcntl.flock(room, mode)
            yield
