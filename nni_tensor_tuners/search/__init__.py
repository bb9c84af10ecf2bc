"""Searches: one ask/tell class per algorithm. They know spaces, and nothing of NNI or TVM."""

import inspect
from difflib import get_close_matches

from .base import Exhausted, Search
from .autotvm import AutoTVM
from .gbfs import GBFS
from .genetic import Genetic
from .na2c import NA2C
from .nose import NoSE
from .opevo import OpEvo
from .random import Random
from .walkgp import WalkGP

SEARCHES = {
    "WalkGP": WalkGP,
    "OpEvo": OpEvo,
    "GBFS": GBFS,
    "NA2C": NA2C,
    "AutoTVM": AutoTVM,
    "NoSE": NoSE,
    "Genetic": Genetic,
    "Random": Random,
}

__all__ = ["SEARCHES", "Exhausted", "Search", "arguments_of", "check_names", "create_search"]


def create_search(name, space, seed=0, **class_args):
    """Create a search by the name it is registered under.

    Parameters
    ----------
    name
        One of ``SEARCHES``.
    space
        A `SearchSpace`.
    seed
        Integer; the same seed gives the same search.
    class_args
        The search's own arguments; see its class.

    Raises
    ------
    ValueError
        In one line, for an unknown name, an unknown argument or a value out of range.
    """
    check_names(f"{name} has no argument", class_args, arguments_of(name))
    return SEARCHES[name](space, seed=seed, **class_args)


def arguments_of(name):
    """The arguments a search has of its own; ValueError for an unknown name."""
    if name not in SEARCHES:
        raise ValueError(f"unknown search {name!r}; allowed: {', '.join(SEARCHES)}")
    return [argument for argument in inspect.signature(SEARCHES[name]).parameters if argument not in ("space", "seed")]


def check_names(complaint, given, allowed):
    """Raise ValueError for the first name of ``given`` that is not ``allowed``, with the nearest one that is."""
    for name in given:
        if name not in allowed:
            near = get_close_matches(str(name), allowed, 1)
            hint = f"did you mean '{near[0]}'? " if near else ""
            raise ValueError(f"{complaint} '{name}'; {hint}allowed: {', '.join(allowed) or 'none'}")
