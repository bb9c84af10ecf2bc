"""NNI trial: every third dies before it asks for its configuration; the others measure like any other."""

import os
import runpy
import signal
import sys
from pathlib import Path

if int(os.environ["NNI_TRIAL_SEQ_ID"]) % 3 == 2:
    os.kill(os.getpid(), signal.SIGKILL)
script = Path(__file__).resolve().parents[2] / "trials" / "matmul.py"
sys.argv[0] = str(script)
runpy.run_path(str(script), run_name="__main__")
