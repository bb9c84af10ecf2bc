"""Workloads: an operator at a fixed shape. Each gives its TVM PrimFunc, its NumPy reference, its inputs and its FLOP count.

TVM and NumPy are imported only where they work, so that naming a workload costs nothing: a trial that starts must not disturb
one that times.
"""

from dataclasses import asdict

from .matmul import LAYOUTS, Matmul

# From BERT: OpEvo appendix B.1.
WORKLOADS = {
    "mm1": Matmul(512, 1024, 1024),
    "mm2": Matmul(512, 1024, 4096),
    "mm3": Matmul(512, 4096, 1024),
}

OPERATORS = {"matmul": Matmul}

__all__ = ["LAYOUTS", "OPERATORS", "WORKLOADS", "Matmul", "get_workload", "to_dict", "from_dict"]


def get_workload(name):
    """A workload by its name in the papers, any case; ValueError if there is none."""
    workload = WORKLOADS.get(name.lower())
    if workload is None:
        raise ValueError(f"unknown workload {name!r}; allowed: {', '.join(WORKLOADS)}")
    return workload


def to_dict(workload):
    """A workload as plain data: its operator and its fields."""
    return {"operator": workload.operator, **asdict(workload)}


def from_dict(data):
    """The workload that `to_dict` wrote."""
    fields = dict(data)
    operator = fields.pop("operator", None)
    if operator not in OPERATORS:
        raise ValueError(f"unknown operator {operator!r}; allowed: {', '.join(OPERATORS)}")
    return OPERATORS[operator](**fields)
