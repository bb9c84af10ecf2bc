"""Tasks: what can be tuned, an operator at a fixed shape.

`Task` is the contract; an operator's folder has its definition beside its templates for CUDA and for the CPU, and `registry` is
the table of them. Nothing here imports TVM or NumPy before it works.
"""

from importlib import import_module

__all__ = ["OPERATORS", "SPACES", "WORKLOADS", "Task", "from_dict", "get_task"]


def __getattr__(name):
    # Loaded when asked for: a trial wants to know what else is running before it loads all operators.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(".task" if name == "Task" else ".registry", __name__), name)
