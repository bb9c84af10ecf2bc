"""Studies: the ask-measure-tell loop around a search, and the files that keep what it learned."""

from .objective import OPTIMIZE_MODES, Objective
from .study import Study, Trial

__all__ = ["OPTIMIZE_MODES", "Objective", "Study", "Trial"]
