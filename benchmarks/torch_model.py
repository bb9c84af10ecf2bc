"""An ONNX file of one convolution or matrix product, run by PyTorch on a CPU: its answer, and how long it takes.

usage: torch_model.py MODEL.onnx INPUTS.npz OUTPUTS.npz SECONDS

The fastest of the ways that PyTorch has counts: its operators as they are, images channels last in between, and oneDNN with the
weights laid out in advance, as torch.compile has them. Prints as `networks.runner`, which times it. Needs PyTorch, NumPy, onnx and
threadpoolctl.
"""

import sys
from functools import partial
from statistics import median

import onnx
import torch
from onnx import helper, numpy_helper
from torch.nn import functional

from nni_tensor_tuners.networks import runner
from nni_tensor_tuners.tasks.device import usable_cores

# Each way is timed for so long, to choose one.
WAY_SECONDS = 0.4


def ways(model, given):
    """Functions that compute what a model does, of its inputs as PyTorch has them."""
    (node,) = [each for each in model.graph.node if each.op_type != "Transpose"]
    before = {each.output[0]: each for each in model.graph.node if each.op_type == "Transpose"}
    known = dict(zip((each.name for each in model.graph.input), given))
    known.update((each.name, torch.from_numpy(numpy_helper.to_array(each).copy())) for each in model.graph.initializer)

    def operand(name):
        return known[before[name].input[0]].mT if name in before else known[name]

    x, w = map(operand, node.input[:2])
    if node.op_type == "MatMul":
        found = [partial(torch.matmul, x, w)]
        if w.ndim == 2:
            packed = torch.ops.mkldnn._reorder_linear_weight(w.t().contiguous(), len(x))
            found.append(lambda: torch.ops.mkldnn._linear_pointwise(x, packed, None, "none", [], ""))
        return found
    attributes = {each.name: helper.get_attribute_value(each) for each in node.attribute}
    dims, transposed = x.ndim - 2, node.op_type == "ConvTranspose"
    strides, padding, groups = list(attributes["strides"]), list(attributes["pads"][:dims]), attributes["group"]
    function = getattr(functional, f"conv{'_transpose' if transposed else ''}{dims}d")
    plain = partial(function, stride=strides, padding=padding, groups=groups)
    found = [lambda: plain(x, w)]
    if dims > 1:
        last = torch.channels_last if dims == 2 else torch.channels_last_3d
        w_last = w.to(memory_format=last)
        found.append(lambda: plain(x.to(memory_format=last), w_last).contiguous())
    if not transposed and dims > 1:
        rest = padding, strides, [1] * dims, groups
        packed = torch.ops.mkldnn._reorder_convolution_weight(w, *rest, list(x.shape))
        found.append(lambda: torch.ops.mkldnn._convolution_pointwise(x, packed, None, *rest, "none", [], "").contiguous())
    return found


def read(path, given):
    """The fastest way, as `runner.read`."""
    torch.set_grad_enabled(False)
    torch.set_num_threads(usable_cores())

    found = ways(onnx.load(path), [torch.from_numpy(each) for each in given])
    fastest = min(found, key=lambda call: median(runner.times(call, WAY_SECONDS)))
    return fastest, lambda result: [result.numpy()]


if __name__ == "__main__":
    runner.main(*sys.argv[1:], read=read)
