"""``python3 -m nni_tensor_tuners.trial``: one NNI trial of any operator. The scripts in ``trials/`` are thin forms of it."""

import sys

from .frontends.nni.trial import add_arguments, main, run

__all__ = ["add_arguments", "main", "run"]

if __name__ == "__main__":
    sys.exit(main())
