"""The table of operators: a folder each, which has ``OPERATORS`` (name -> class) and ``WORKLOADS`` (name -> task)."""

from importlib import import_module

from .task import Tunable

FOLDERS = ("matmul", "conv", "norm", "program", "network")

# "extended" has parameters that the papers' spaces do not have.
SPACES = ("paper", "extended")

_FOLDERS = [import_module(f".{folder}", __package__) for folder in FOLDERS]

OPERATORS = {name: operator for folder in _FOLDERS for name, operator in folder.OPERATORS.items()}
WORKLOADS = {name: task for folder in _FOLDERS for name, task in folder.WORKLOADS.items()}


def operator_of(name):
    """The class of an operator: one of ``OPERATORS``, or "package.module:Class", a `Task` from outside this package.

    Raises
    ------
    ValueError
        If there is none.
    """
    if not isinstance(name, str) or ":" not in name:
        if name not in OPERATORS:
            raise ValueError(f"unknown operator {name!r}; allowed: {', '.join(OPERATORS)}")
        return OPERATORS[name]
    module, _, attribute = name.partition(":")
    try:
        operator = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"operator {name!r}: {error}") from None
    if not (isinstance(operator, type) and issubclass(operator, Tunable)):
        raise ValueError(f"operator {name!r}: it is no subclass of nni_tensor_tuners.tasks.Task")
    return operator


def get_task(name):
    """A named workload, any case; ValueError if there is none."""
    task = WORKLOADS.get(name.lower())
    if task is None:
        raise ValueError(f"unknown workload {name!r}; allowed: {', '.join(WORKLOADS)}")
    return task


def from_dict(data):
    """The task that `Task.to_dict` wrote.

    Raises
    ------
    ValueError
        If there is no such operator, or a field is missing, unknown or has a bad value.
    """
    fields = dict(data)
    operator = operator_of(fields.pop("operator", None))
    try:
        return operator(**fields)
    except TypeError as error:  # a field that is missing or unknown
        raise ValueError(f"{data['operator']}: {error}") from None
