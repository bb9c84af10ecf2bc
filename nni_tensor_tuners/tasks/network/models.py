"""Reading models: ONNX, Relax, PyTorch, and those built in. TVM is imported inside functions only."""

import re
from pathlib import Path

from ..program.load import keywords_of, module_at, one_line, parse
from ..program.workloads import PROGRAMS
from .zoo import NETWORKS


def is_model(text):
    """Whether an argument names a model: a file of ONNX or PyTorch, one that is built in, or what leads to a Relax module."""
    if text is None or text.partition("(")[0] in PROGRAMS:
        return False
    if text.endswith((".onnx", ".pt2")) or text.partition("(")[0] in NETWORKS:
        return True
    if not text.endswith(".json") and parse(text) is None:
        return False
    try:
        return is_relax(_read(text, None))
    except Exception:  # whoever takes it for a program says what is wrong with it
        return False


def model_name(text, batch=None):
    """What a model's folder and experiments are called: "resnet18", "my-model-batch8"."""
    stem = re.sub(r"\.(onnx|pt2|json)$", "", text).rpartition("/")[2].rpartition(":")[2]
    return re.sub(r"[^\w-]+", "-", stem).strip("-") + ("" if batch in (None, 1) else f"-batch{batch}")


def read(text, batch=None):
    """A model as a Relax IRModule, its weights bound.

    Parameters
    ----------
    text
        "model.onnx"; "model.pt2", what ``torch.export.save`` wrote; "model.json", what ``tvm.ir.save_json`` wrote of an
        IRModule; "module.py:function", which returns such a module; or one of ``NETWORKS``.
    batch
        What stands for a symbolic first dimension of ONNX inputs, and the batch of one that is built in; 1 by default.

    Raises
    ------
    ValueError
        In one line that names what is wrong with it.
    """
    try:
        found = _read(text, batch)
    except FileNotFoundError:
        raise ValueError(f"model {text}: there is no such file") from None
    except ImportError as error:
        raise ValueError(f"model {text}: {error.name or error} is not installed; pip install {error.name}") from None
    except ValueError as error:
        raise ValueError(f"model {text}: {one_line(error)}") from None
    except Exception as error:  # whatever reading the file, or running the module, raises
        raise ValueError(f"model {text}: {type(error).__name__}: {one_line(error)}") from None
    _check(found, text)
    return found


def is_relax(found):
    """Whether an IRModule is a model: it has a Relax function called "main"."""
    from tvm import IRModule, relax

    return isinstance(found, IRModule) and any(
        variable.name_hint == "main" and isinstance(function, relax.Function) for variable, function in found.functions_items()
    )


def _read(text, batch):
    import tvm

    name = text.partition("(")[0]
    if name in NETWORKS:
        given = keywords_of(text[len(name) :] or "()")
        return NETWORKS[name](**{**({} if batch is None else {"batch": batch}), **given})
    if text.endswith(".onnx"):
        return _onnx(text, batch or 1)
    if text.endswith(".pt2"):
        return _exported_program(text)
    if text.endswith(".json"):
        return tvm.ir.load_json(Path(text).read_text(encoding="utf-8"))
    if (parsed := parse(text)) is None:
        raise ValueError(f"expected model.onnx, model.pt2, model.json, module.py:function, or one of {', '.join(NETWORKS)}")
    where, function, arguments = parsed
    found = getattr(module_at(where), function, None)
    if found is None:
        raise ValueError(f"there is no {function} in {where}")
    return found(**keywords_of(arguments)) if callable(found) and not isinstance(found, tvm.IRModule) else found


def _onnx(path, batch):
    import onnx
    from tvm.relax.frontend.onnx import from_onnx

    model = onnx.load(path)
    weights = {each.name for each in model.graph.initializer}
    shapes = {}
    for given in model.graph.input:
        if given.name in weights:
            continue
        extents = [each.dim_value or each.dim_param for each in given.type.tensor_type.shape.dim]
        if extents and not isinstance(extents[0], int):
            extents[0] = batch
        symbolic = [str(extent) for extent in extents if not isinstance(extent, int)]
        if symbolic:
            raise ValueError(f"input {given.name} has a dynamic shape ({', '.join(symbolic)}); give it one that is fixed")
        shapes[given.name] = extents
    used = {name for node in model.graph.node for name in node.input if name}
    made = {name for node in model.graph.node for name in node.output} | weights | set(shapes)
    if missing := sorted(used - made):
        raise ValueError(f"its weights are missing: there is no {missing[0]}")
    return from_onnx(model, shape_dict=shapes)


def _exported_program(path):
    import torch
    from tvm.relax.frontend.torch import from_exported_program

    return from_exported_program(torch.export.load(path))


def _check(found, text):
    import tvm
    from tvm import relax

    if not is_relax(found):
        raise ValueError(f"model {text}: expected an IRModule with a Relax function called main, got {type(found).__name__}")
    for variable in found["main"].params:
        shape = getattr(variable.ty, "shape", None)
        if not isinstance(variable.ty, relax.TensorType) or shape is None:
            raise ValueError(f"model {text}: {variable.name} is no tensor of known shape")
        if not all(isinstance(extent, (int, tvm.tirx.IntImm)) for extent in shape):
            raise ValueError(f"model {text}: input {variable.name} has a dynamic shape; give it one that is fixed")
