#!/usr/bin/env python3
"""NNI trial: compile, check and time one matrix multiplication, and report its TFLOPS."""

import argparse
import sys

from nni_tensor_tuners import trial
from nni_tensor_tuners.arguments import add_shape
from nni_tensor_tuners.workloads import Matmul, get_workload


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog="examples: matmul.py mm1    matmul.py --n 512 --k 1024 --m 1024 --layout NT --target cpu",
    )
    parser.add_argument("workload", nargs="?", help="a workload of the OpEvo paper: mm1, mm2, mm3")
    add_shape(parser)
    trial.add_arguments(parser)
    args = parser.parse_args()
    shape = (args.n, args.k, args.m)
    try:
        if args.workload is None and None in shape:
            raise ValueError("name a workload, or give all of --n, --k and --m")
        if args.workload is not None and shape != (None,) * 3:
            raise ValueError("give a workload or a shape, not both")
        workload = get_workload(args.workload) if args.workload else Matmul(*shape, layout=args.layout)
    except ValueError as error:
        parser.error(str(error))
    return trial.run(workload, args)


if __name__ == "__main__":
    sys.exit(main())
