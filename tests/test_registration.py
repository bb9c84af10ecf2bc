"""The file that users hand to nnictl, the class name that it registers, and an nnictl that does not end."""

import importlib

import pytest
import yaml

from nni_tensor_tuners.frontends.nni import manager
from nni_tensor_tuners.frontends.nni.tuner import TensorTuner


def test_the_shipped_file_is_what_the_table_of_searches_says():
    assert yaml.safe_load(manager.ALGORITHMS.read_text()) == manager.algorithms()


def test_the_registered_class_is_the_tuner():
    for entry in manager.algorithms()["algorithms"]:
        module, _, name = entry["className"].rpartition(".")
        assert getattr(importlib.import_module(module), name) is TensorTuner


def test_an_nnictl_that_does_not_end_is_one_clear_line(tmp_path, monkeypatch):
    """As NNI's does with a filelock newer than it asks for."""
    folder = tmp_path / "nni" / "tools" / "nnictl"
    folder.mkdir(parents=True)
    (folder / "nnictl.py").write_text("import threading\nthreading.Event().wait()\n")
    for package in (folder, folder.parent, folder.parent.parent):
        (package / "__init__.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(manager, "NNICTL_SECONDS", 1)
    with pytest.raises(manager.NnictlError, match="^nnictl create: it has not ended in 1 s$"):
        manager.nnictl("create")
