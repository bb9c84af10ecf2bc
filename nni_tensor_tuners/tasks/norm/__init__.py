"""The 2-norm of matrices."""

from .definition import Norm

OPERATORS = {"norm": Norm}
WORKLOADS = {}

__all__ = ["OPERATORS", "WORKLOADS", "Norm"]
