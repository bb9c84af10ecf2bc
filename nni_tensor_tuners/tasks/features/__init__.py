"""What a scheduled program is like, in numbers that mean the same for every schedule, shape and operator."""

from .loops import Loop, Touch, code_size, longest_chain, loops_of, scalar_accesses
from .vectors import FEATURES, describer, vector

__all__ = ["FEATURES", "Loop", "Touch", "code_size", "describer", "longest_chain", "loops_of", "scalar_accesses", "vector"]
