"""``python3 -m nni_tensor_tuners.trial``: one NNI trial of any operator. The scripts in ``trials/`` are thin forms of it."""

import sys

from .measure.lock import DeviceLock
from .tasks.device import GENERIC

with DeviceLock(GENERIC["cpu"]).shared():  # another trial may be timing on these cores; loading would be timed along
    from .frontends.nni.trial import add_arguments, main, run

__all__ = ["add_arguments", "main", "run"]

if __name__ == "__main__":
    sys.exit(main())
