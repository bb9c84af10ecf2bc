#!/usr/bin/env python3
"""NNI trial: compile, check and time one batch of matrix multiplications, and report its TFLOPS."""

import sys

from nni_tensor_tuners import trial

if __name__ == "__main__":
    sys.exit(
        trial.main(
            __doc__,
            ("batch_matmul",),
            "examples: batch_matmul.py bmm1    batch_matmul.py --b 12 --n 128 --k 64 --m 128 --layout NT",
        )
    )
