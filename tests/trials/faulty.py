"""NNI trial: a configuration names the fault that it is to have."""

import argparse
import sys

from faulty_template import Faulty

from nni_tensor_tuners import trial

parser = argparse.ArgumentParser()
trial.add_arguments(parser)
sys.exit(trial.run(Faulty(16, 24, 32), parser.parse_args()))
