"""Topology-aware auto-tuners for tensor operators, on NNI and TVM."""

from importlib import import_module

__version__ = "0.2.0"
__all__ = ["Exhausted", "SearchSpace", "create_search"]

_HOMES = {"Exhausted": ".search", "SearchSpace": ".space", "create_search": ".search"}


def __getattr__(name):
    # Loaded when asked for: the searches need NumPy, and every trial imports this package while another one times.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name], __name__), name)
