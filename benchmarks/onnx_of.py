"""Networks that are built in as ONNX files, for onnxruntime and whoever reads ONNX.

usage: onnx_of.py NETWORK [...] [--batch 1] [--folder .]
"""

import argparse
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from nni_tensor_tuners.tasks.network.models import read
from nni_tensor_tuners.tasks.network.zoo import NETWORKS

OPSET = 17
# Those that need nothing but another name.
SAME = {
    "add": "Add",
    "multiply": "Mul",
    "minimum": "Min",
    "matmul": "MatMul",
    "nn.relu": "Relu",
    "erf": "Erf",
    "tanh": "Tanh",
    "sigmoid": "Sigmoid",
    "nn.softmax": "Softmax",
}


def numbers(values):
    return [int(each) for each in values]


class Graph:
    """Nodes and weights of an ONNX graph, as a Relax function is walked through."""

    def __init__(self):
        self.nodes, self.weights, self.names = [], [], {}

    def name(self, expression):
        if hasattr(expression, "value") and hasattr(expression.value, "numpy"):
            return self.weight(expression.value.numpy())
        return self.names[expression.name]

    def weight(self, array):
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def call(self, call, output):
        op, attributes = call.op.name.removeprefix("relax."), call.attrs
        given = [self.name(each) for each in call.args if hasattr(each, "name") or hasattr(each, "value")]
        if op in SAME:
            return self.node(SAME[op], given, output)
        if op in ("nn.conv1d", "nn.conv2d", "nn.conv3d", "nn.conv2d_transpose"):
            return self.node(
                "ConvTranspose" if op.endswith("transpose") else "Conv",
                given,
                output,
                strides=numbers(attributes.strides),
                pads=numbers(attributes.padding),
                group=int(attributes.groups),
            )
        if op in ("nn.max_pool2d", "nn.max_pool3d"):
            return self.node(
                "MaxPool",
                given,
                output,
                kernel_shape=numbers(attributes.pool_size),
                strides=numbers(attributes.strides),
                pads=numbers(attributes.padding),
            )
        if op == "reshape":
            return self.node("Reshape", [given[0], self.weight(np.array(numbers(call.ty.shape), "int64"))], output)
        if op == "permute_dims":
            return self.node("Transpose", given, output, perm=numbers(attributes.axes))
        if op == "mean":
            return self.node("ReduceMean", given, output, axes=numbers(attributes.axis), keepdims=int(attributes.keepdims))
        if op == "nn.layer_norm":
            return self.node("LayerNormalization", given, output, axis=-1, epsilon=float(attributes.epsilon))
        if op == "concat":
            return self.node("Concat", [self.name(each) for each in call.args[0].fields], output, axis=int(attributes.axis))
        if op == "strided_slice":
            parts = [self.weight(np.array([int(e.value) for e in each.fields], "int64")) for each in call.args[1:4]]
            axes, begin, end = parts
            return self.node("Slice", [given[0], begin, end, axes], output)
        raise SystemExit(f"error: there is no ONNX operator for {op} here")

    def node(self, kind, inputs, output, **attributes):
        self.nodes.append(helper.make_node(kind, inputs, [output], **attributes))


def to_onnx(text, batch, path):
    """Write a model, as `models.read` reads it, to an ONNX file."""
    module = read(text, batch)
    function, graph = module["main"], Graph()
    for variable in function.params:
        graph.names[variable.name] = variable.name
    for block in function.body.blocks:
        for number, binding in enumerate(block.bindings):
            value, variable = binding.value, binding.var
            if hasattr(value, "name"):  # another name
                graph.names[variable.name] = graph.names[value.name]
                continue
            output = f"{variable.name}_{number}"
            graph.call(value, output)
            graph.names[variable.name] = output
    out = graph.names[function.body.body.name]
    inputs = [(each.name, each.ty) for each in function.params]
    tensors = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, numbers(ty.shape)) for name, ty in each]
        for each in (inputs, [(out, function.ret_ty)])
    ]
    model = helper.make_graph(graph.nodes, text, *tensors, graph.weights)
    made = helper.make_model(model, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)
    onnx.checker.check_model(made)
    onnx.save(made, path)
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="+", choices=NETWORKS)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--folder", type=Path, default=Path("."))
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    for name in args.networks:
        print(to_onnx(name, args.batch, args.folder / f"{name}.onnx"))


if __name__ == "__main__":
    main()
