"""What NNI loads where a search was registered before `frontends.nni` was there, and still: the registered class name."""

from .frontends.nni.tuner import TensorTuner

__all__ = ["TensorTuner"]
