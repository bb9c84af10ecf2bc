"""Searches: one ask/tell class per algorithm. They know spaces, and nothing of NNI or TVM."""

from .base import Exhausted, Search
from .registry import SEARCHES, arguments_of, check_class_args, check_names, create_search, search_named_by_nni

__all__ = [
    "SEARCHES",
    "Exhausted",
    "Search",
    "arguments_of",
    "check_class_args",
    "check_names",
    "create_search",
    "search_named_by_nni",
]


def __getattr__(name):
    # The classes themselves: loaded when asked for, as some need NumPy, SciPy or XGBoost.
    if name not in SEARCHES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return SEARCHES[name].load()
