"""Tests keep NNI's experiments in a home of their own, and never touch the user's."""

import atexit
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

TESTS = Path(__file__).parent
# Side by side, not one in another: the path of a keeper's socket is no longer than 107 bytes.
HOME = tempfile.mkdtemp(prefix="tensor-tuners-tests-", dir=os.environ.setdefault("TENSOR_TUNERS_TESTS", tempfile.gettempdir()))
atexit.register(shutil.rmtree, HOME, ignore_errors=True)
os.environ["HOME"] = HOME  # before nni is imported, which remembers it
os.environ["NNI_CONFIG_DIR"] = os.path.join(HOME, "config")  # in a virtual environment NNI registers there, not at home
os.environ.pop("TENSOR_TUNERS_TARGET", None)
# Locks and kept answers, too: tests side by side need not wait for each other's turn to time.
os.environ["TMPDIR"] = tempfile.tempdir = HOME
sys.path.insert(0, str(TESTS))


def wait_for(condition, seconds=120):
    """Poll until a condition holds; returns what it returned."""
    deadline = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.1)
    return result
