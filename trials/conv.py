#!/usr/bin/env python3
"""NNI trial: compile, check and time one convolution, over one to three dimensions, and report its TFLOPS."""

import sys

from nni_tensor_tuners import trial

if __name__ == "__main__":
    sys.exit(
        trial.main(
            __doc__,
            ("conv1d", "conv2d", "conv3d"),
            "examples: conv.py resnet18-c2    conv.py c2 --batch 8    "
            "conv.py --batch 1 --in-channels 64 --image 56 56 --out-channels 64 --kernel 3 --padding 1 --groups 64",
        )
    )
