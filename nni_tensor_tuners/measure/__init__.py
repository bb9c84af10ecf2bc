"""Measuring: build a configuration, check its answer, time it."""

from .codes import ErrorCode
from .limits import Limits
from .measure import measure, measure_reference

__all__ = ["ErrorCode", "Limits", "measure", "measure_reference"]
