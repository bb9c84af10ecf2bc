"""Where the processes of one user keep what they share."""

import contextlib
import hashlib
import os
import stat
import tempfile
from pathlib import Path


def shared_folder():
    """This user's folder for what processes share.

    Raises
    ------
    OSError
        In one line, if what has its name is not a folder that only we can write to: anybody may have made it.
    """
    folder = Path(tempfile.gettempdir()) / f"tensor-tuners-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise OSError(f"{folder}: expected a folder of ours, and it is none (a link or a file); remove it")
    if status.st_uid != os.getuid():
        raise OSError(f"{folder}: expected a folder of ours, and it belongs to user {status.st_uid}")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise OSError(f"{folder}: others may write to it (mode {stat.S_IMODE(status.st_mode):o}); chmod 700 it, or remove it")
    return folder


def known_file(operator, path, sha256):
    """The absolute path and the SHA-256 of a file that a task of an operator is in.

    Raises
    ------
    ValueError
        If it cannot be read, or its SHA-256 is another one than is given; "" is any.
    """
    path = Path(path).expanduser()
    try:
        found = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise ValueError(f"{operator}: cannot read {path} ({error.strerror})") from None
    if sha256 not in ("", found):
        raise ValueError(f"{operator}: {path} has changed: its sha256 is {found}, not {sha256}")
    return str(path.resolve()), found


def write_whole(path, text):
    """Write a text file whole or not at all, whoever else writes the same."""
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=path.name, delete=False, encoding="utf-8") as file:
        file.write(text)
    os.replace(file.name, path)
