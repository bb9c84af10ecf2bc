#!/usr/bin/env python3
"""NNI trial: compile, check and time one matrix multiplication, and report its TFLOPS."""

import sys

from nni_tensor_tuners import trial

if __name__ == "__main__":
    sys.exit(
        trial.main(
            __doc__, ("matmul",), "examples: matmul.py mm1    matmul.py --n 512 --k 1024 --m 1024 --layout NT --target cpu"
        )
    )
