"""One trial at a time times on a device; on a CPU, nobody compiles meanwhile either."""

import fcntl
import os
import tempfile
from contextlib import contextmanager
from pathlib import Path


class DeviceLock:
    """A lock on a device, between all processes of this machine's user; the kernel frees it when its holder dies.

    Compiling takes a share, timing takes the whole. A GPU does not notice compilers, so there sharing is free; on a CPU they
    would be timed along with the kernel.

    Parameters
    ----------
    device
        A `Device`.

    Attributes
    ----------
    folder
        This user's folder for what processes share.
    """

    def __init__(self, device):
        self.folder = Path(tempfile.gettempdir()) / f"tensor-tuners-{os.getuid()}"
        self.folder.mkdir(mode=0o700, exist_ok=True)
        self._room = self.folder / f"{device.identity}.lock"
        # Whoever wants in passes the door first, so that a stream of compilers cannot keep a timing waiting for ever.
        self._door = self.folder / f"{device.identity}.door"
        self._sharing_matters = device.kind == "cpu" and not device.rpc

    @contextmanager
    def shared(self):
        """Held while compiling."""
        if not self._sharing_matters:
            yield
            return
        with self._held(fcntl.LOCK_SH):
            yield

    @contextmanager
    def exclusive(self):
        """Held while timing."""
        with self._held(fcntl.LOCK_EX):
            yield

    @contextmanager
    def _held(self, mode):
        with open(self._room, "a", encoding="utf-8") as room:
            with open(self._door, "a", encoding="utf-8") as door:
                fcntl.flock(door, fcntl.LOCK_EX)
                fcntl.flock(room, mode)
            yield
