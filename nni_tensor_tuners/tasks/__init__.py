"""Workloads: an operator at a fixed shape. Each gives its TVM PrimFunc, its NumPy reference, its inputs and its FLOP count.

TVM and NumPy are imported only where they work, so that naming a workload costs nothing: a trial that starts must not disturb
one that times.
"""

from dataclasses import asdict

from .conv import Conv
from .matmul import LAYOUTS, BatchMatmul, Matmul


def _resnet18(image, in_channels, out_channels, kernel, stride):
    """A convolution of ResNet-18 on one image; padding keeps the image's size at stride 1."""
    return Conv(1, in_channels, (image, image), out_channels, (kernel, kernel), stride, kernel // 2)


WORKLOADS = {
    # From BERT: OpEvo appendix B.1.
    "mm1": Matmul(512, 1024, 1024),
    "mm2": Matmul(512, 1024, 4096),
    "mm3": Matmul(512, 4096, 1024),
    # From BERT: OpEvo appendix B.2. In the third, X of (128, 64) "is transposed first and then right multiplies" Y of (128, 64),
    # which is read as Y X^T: (128, 64) (64, 128), the product of queries and keys. So do the authors' own files
    # (B960N128K64M128, layout NT). The operand that comes first in the product is our X.
    "bmm1": BatchMatmul(128, 128, 64, "NN", 960),
    "bmm2": BatchMatmul(128, 128, 64, "TN", 960),
    "bmm3": BatchMatmul(128, 64, 128, "NT", 960),
    # From AlexNet: OpEvo appendix B.3.
    "c1": Conv(512, 3, (227, 227), 64, (11, 11), 4, 0),
    "c2": Conv(512, 64, (27, 27), 192, (5, 5), 1, 2),
    # ResNet-18 on one image: table 1 of the AutoTVM paper, table II of the NoSE paper.
    "resnet18-c1": _resnet18(224, 3, 64, 7, 2),
    "resnet18-c2": _resnet18(56, 64, 64, 3, 1),
    "resnet18-c3": _resnet18(56, 64, 64, 1, 1),
    "resnet18-c4": _resnet18(56, 64, 128, 3, 2),
    "resnet18-c5": _resnet18(56, 64, 128, 1, 2),
    "resnet18-c6": _resnet18(28, 128, 128, 3, 1),
    "resnet18-c7": _resnet18(28, 128, 256, 3, 2),
    "resnet18-c8": _resnet18(28, 128, 256, 1, 2),
    "resnet18-c9": _resnet18(14, 256, 256, 3, 1),
    "resnet18-c10": _resnet18(14, 256, 512, 3, 2),
    "resnet18-c11": _resnet18(14, 256, 512, 1, 2),
    "resnet18-c12": _resnet18(7, 512, 512, 3, 1),
}

OPERATORS = {"matmul": Matmul, "batch_matmul": BatchMatmul, "conv1d": Conv, "conv2d": Conv, "conv3d": Conv}

__all__ = ["LAYOUTS", "OPERATORS", "WORKLOADS", "BatchMatmul", "Conv", "Matmul", "get_workload", "to_dict", "from_dict"]


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
