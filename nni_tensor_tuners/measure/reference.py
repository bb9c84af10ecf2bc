"""What a kernel's output is compared with. The answer to a large task is kept, lest every trial compute it again."""

import contextlib
import os
import tempfile
from pathlib import Path

from .lock import only_one

# Above this, a CPU core needs more than about a tenth of a second.
KEPT_FLOP = 10e9

# So much is kept in all, of this user's tasks; the oldest answers go. One that is larger by itself is not kept.
KEPT_BYTES = 2 << 30

# One process at a time computes an answer, on all cores: the trials that begin an experiment together all want the same one.
LOCK = "answers.lock"

# At most, what NumPy writes before the data.
HEADER_BYTES = 4096


def expected_output(task, inputs, folder, kept_bytes=KEPT_BYTES):
    """The reference's output for ``task.inputs()``, not to be written to.

    Parameters
    ----------
    task, inputs
        The `Task` and its inputs.
    folder
        Where answers are kept.
    kept_bytes
        The most that files of answers there may take.
    """
    import numpy as np

    if task.flop < KEPT_FLOP and task.numpy:  # what is not NumPy's has to be compiled first
        return task.reference(*inputs)
    path = Path(folder) / f"reference-{task.digest()[:16]}.npy"
    with contextlib.suppress(OSError, ValueError):  # not there yet, or unreadable
        return np.load(path, mmap_mode="r")
    with contextlib.ExitStack() as alone:
        with contextlib.suppress(OSError):  # no folder to keep it in
            alone.enter_context(only_one(Path(folder) / LOCK))
        with contextlib.suppress(OSError, ValueError):  # another process may have computed it meanwhile
            return np.load(path, mmap_mode="r")
        expected = task.reference(*inputs)
        with contextlib.suppress(OSError):  # a full disk is no fault of the kernel
            _keep(expected, path, kept_bytes)
    return expected


def _keep(expected, path, kept_bytes):
    """Write an answer to a file, and delete the oldest ones beside it that are too much."""
    import numpy as np

    if expected.nbytes + HEADER_BYTES > kept_bytes:
        return
    _make_room(path.parent, kept_bytes - expected.nbytes - HEADER_BYTES)
    # Whole or not at all, whoever else writes the same.
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix="reference-", suffix=".part", delete=False) as file:
        try:
            np.save(file, expected)
            file.flush()
        except OSError:
            os.unlink(file.name)
            raise
    os.replace(file.name, path)
    _make_room(path.parent, kept_bytes)  # others may have written meanwhile


def _make_room(folder, most):
    """Delete the oldest answers, and parts of them that a killed process left, until no more bytes than so many are left."""
    found = []
    for path in folder.glob("reference-*"):
        with contextlib.suppress(FileNotFoundError):  # another process has deleted it
            status = path.stat()
            found.append((status.st_mtime, status.st_size, path))
    total = sum(size for _, size, _ in found)
    for _, size, path in sorted(found):
        if total <= most:
            return
        path.unlink(missing_ok=True)
        total -= size
