"""Whole networks: a model's tensor programs, and how often it runs each."""

from .definition import Network
from .zoo import NETWORKS

OPERATORS = {"network": Network}
WORKLOADS = {}

__all__ = ["NETWORKS", "OPERATORS", "WORKLOADS", "Network"]
