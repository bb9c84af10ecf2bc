"""Topology-aware auto-tuners for tensor operators, on NNI and TVM."""

from .search import Exhausted, create_search
from .space import SearchSpace

__all__ = ["Exhausted", "SearchSpace", "create_search"]
__version__ = "0.1.0"
