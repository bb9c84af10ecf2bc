"""NNI trial: a configuration names the fault that it is to have."""

import argparse
import sys

from nni_tensor_tuners import trial
from nni_tensor_tuners.workloads import Matmul

parser = argparse.ArgumentParser()
trial.add_arguments(parser)
sys.exit(trial.run(Matmul(16, 24, 32), parser.parse_args(), template="faulty_template"))
