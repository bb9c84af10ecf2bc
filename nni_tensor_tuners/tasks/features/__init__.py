"""What a scheduled program is like, in numbers that mean the same for every schedule, shape and operator."""

from .loops import Loop, Touch, longest_chain, loops_of
from .vectors import FEATURES, describer, vector

__all__ = ["FEATURES", "Loop", "Touch", "describer", "longest_chain", "loops_of", "vector"]
