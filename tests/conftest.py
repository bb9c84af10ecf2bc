"""Tests keep NNI's experiments in a home of their own, and never touch the user's."""

import atexit
import os
import shutil
import sys
import tempfile
from pathlib import Path

HOME = tempfile.mkdtemp(prefix="tensor-tuners-tests-")
atexit.register(shutil.rmtree, HOME, ignore_errors=True)
os.environ["HOME"] = HOME  # before nni is imported, which remembers it
os.environ.pop("TENSOR_TUNERS_TARGET", None)
sys.path.insert(0, str(Path(__file__).parent))
