"""``python -m nni_tensor_tuners``: the same as the command ``tensor-tuners``."""

import sys

from .cli import main

sys.exit(main())
