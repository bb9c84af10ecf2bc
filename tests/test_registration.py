"""The file that users hand to nnictl, and the class name that it registers."""

import importlib

import yaml

from nni_tensor_tuners.frontends.nni import manager
from nni_tensor_tuners.frontends.nni.tuner import TensorTuner


def test_the_shipped_file_is_what_the_table_of_searches_says():
    assert yaml.safe_load(manager.ALGORITHMS.read_text()) == manager.algorithms()


def test_the_registered_class_is_the_tuner():
    for entry in manager.algorithms()["algorithms"]:
        module, _, name = entry["className"].rpartition(".")
        assert getattr(importlib.import_module(module), name) is TensorTuner
