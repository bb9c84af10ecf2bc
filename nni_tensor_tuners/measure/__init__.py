"""Measuring: build a configuration, check its answer, time it."""

from importlib import import_module

__all__ = ["ErrorCode", "Limits", "measure", "measure_reference"]

_HOMES = {"ErrorCode": ".codes", "Limits": ".limits", "measure": ".process", "measure_reference": ".process"}


def __getattr__(name):
    # Loaded when asked for: a trial takes the device's lock before it loads the rest.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name], __name__), name)
