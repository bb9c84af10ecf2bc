"""Tasks: what can be tuned, an operator at a fixed shape.

`Task` is the contract; an operator's folder has its definition beside its templates for CUDA and for the CPU, and `registry` is
the table of them. Nothing here imports TVM or NumPy before it works.
"""

from .registry import OPERATORS, SPACES, WORKLOADS, from_dict, get_task
from .task import Task

__all__ = ["OPERATORS", "SPACES", "WORKLOADS", "Task", "from_dict", "get_task"]
