"""What models answer, built in one way and another."""

import numpy as np
import tvm
from conftest import TESTS
from tvm import relax

from nni_tensor_tuners.tasks.network import lower, models
from nni_tensor_tuners.tasks.program import Program
from nni_tensor_tuners.tasks.program.load import save
from nni_tensor_tuners.tasks.shared import shared_folder

MODELS = TESTS / "my_models.py"
SMALL = f"{MODELS}:small"
INPUT = np.random.default_rng(1).uniform(-1, 1, (1, 3, 16, 16)).astype("float32")  # of `SMALL`, an image


def data_for(model, seed=0):
    """Random data for a model of one input."""
    shape = [int(each) for each in model["main"].params[0].ty.shape]
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype("float32")


def answer(executable, data):
    return relax.VirtualMachine(executable, tvm.cpu())["main"](tvm.runtime.tensor(data)).numpy()


def untuned(text):
    return tvm.compile(models.read(text), target="llvm")


def lowered_beside(text, device):
    """A model, lowered for a device, beside itself, on the same data.

    Returns the model; what it is lowered to; a function of what `lower.build` takes of schedules, which returns what that answers with
    them; and what the model as it is does.
    """
    model = models.read(text)
    module, data = lower.lowered(model, device), data_for(model)
    return model, module, lambda schedules: answer(lower.build(module, schedules, device), data), answer(untuned(text), data)


def tasks_of(module, device):
    """Name -> `Program` of each task of a lowered model."""
    return {name: Program(str(save(function, shared_folder()))) for name, function, _ in lower.tasks(module, device)}


def scheduled(tasks, device, choose=Program.default):
    """What `lower.build` takes of tasks, by what ``choose`` takes of each on a device; where that is None there is nothing."""
    chosen = ((task, choose(task, device)) for task in tasks)
    return [(task.source, task.schedule(config, device)) for task, config in chosen if config is not None]
