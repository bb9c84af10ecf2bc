"""Reading tensor programs: from Python, and from TVM's JSON. TVM is imported inside functions only."""

import ast
import hashlib
import importlib
import importlib.util
import re
from pathlib import Path

from ..shared import write_whole
from .workloads import PROGRAMS

DTYPES = ("float16", "bfloat16", "float32", "float64", "int8", "uint8", "int16", "int32", "int64")


# Where a program is, what it is called there, and the arguments of a function that makes it.
SOURCE = re.compile(r"(?:(?P<where>[^()]+):)?(?P<name>\w+)(?P<arguments>\(.*\))?")
NAMED = f"{__package__}.workloads"


def parse(source):
    """(where, name, arguments) of a text that names a program in Python; None if it names none.

    A program of the papers (`workloads`) needs no place: "c1d", "gmm(n=64, batch=16)".

    >>> parse("my_ops.py:layer_norm(n=64)")
    ('my_ops.py', 'layer_norm', '(n=64)')
    """
    found = SOURCE.fullmatch(source)
    if not found or not (found["where"] or found["name"] in PROGRAMS):
        return None
    return found["where"] or NAMED, found["name"], found["arguments"] or "()"


def load(source):
    """The PrimFunc that a text names.

    Parameters
    ----------
    source
        "module.py:name" or "package.module:name", where the name is that of a PrimFunc (TVMScript), of an IRModule with one
        function, or of a function that returns one of these, or TE tensors, the output last. It may be followed by arguments:
        "my_ops.py:layer_norm(n=64)". One of `workloads` needs no module. Or a file that ``tvm.ir.save_json`` filled.

    Raises
    ------
    ValueError
        In one line that names what is wrong with it.
    """
    try:
        if source.endswith(".json"):
            import tvm

            found, given = tvm.ir.load_json(Path(source).read_text(encoding="utf-8")), {}
        elif (parsed := parse(source)) is None:
            raise ValueError(f"expected module.py:function, a file.json, or one of {', '.join(PROGRAMS)}")
        else:
            where, name, arguments = parsed
            found, given = getattr(module_at(where), name, None), keywords_of(arguments)
            if found is None:
                raise ValueError(f"there is no {name} in {where}")
    except FileNotFoundError:
        raise ValueError(f"program {source}: there is no such file") from None
    except ValueError as error:
        raise ValueError(f"program {source}: {error}") from None
    except Exception as error:  # whatever reading the file, or running the module, raises
        raise ValueError(f"program {source}: {type(error).__name__}: {one_line(error)}") from None
    return _prim_func(found, given, source)


def keywords_of(arguments):
    """The keyword arguments of a text such as "(n=64)", literals; ValueError of anything else."""
    try:
        call = ast.parse(f"f{arguments}", mode="eval").body
        if call.args or any(keyword.arg is None for keyword in call.keywords):
            raise ValueError
        return {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords}
    except (SyntaxError, ValueError):
        raise ValueError(f"expected arguments such as (n=64, dtype='float16'), got {arguments}") from None


def module_at(where):
    """The Python module of a file, or of a dotted name; ValueError or ImportError where there is none."""
    if not where.endswith(".py"):
        return importlib.import_module(where)
    path = Path(where).expanduser()
    if not path.is_file():
        raise ValueError(f"there is no file {path}")
    spec = importlib.util.spec_from_file_location(f"tensor_program_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _prim_func(found, given, source):
    import tvm
    from tvm import te

    if callable(found) and not isinstance(found, (tvm.tirx.PrimFunc, tvm.IRModule)):
        try:
            found = found(**given)
        except Exception as error:
            raise ValueError(f"program {source}: it raised {type(error).__name__}: {one_line(error)}") from None
    if isinstance(found, (list, tuple)) and found and all(isinstance(each, te.Tensor) for each in found):
        found = te.create_prim_func(list(found))
    if isinstance(found, tvm.IRModule):
        functions = [function for _, function in found.functions_items() if isinstance(function, tvm.tirx.PrimFunc)]
        if len(functions) != 1:
            raise ValueError(f"program {source}: expected a module with one PrimFunc, it has {len(functions)}")
        (found,) = functions
    if not isinstance(found, tvm.tirx.PrimFunc):
        raise ValueError(
            f"program {source}: expected a PrimFunc, an IRModule of one, or TE tensors, got {type(found).__name__}"
        )
    check_program(found, source)
    return found


def check_program(function, source):
    """ValueError unless a PrimFunc has buffers of static shape and types we can fill, and writes the last one alone."""
    import tvm
    from tvm import s_tir

    buffers = list(function.params)
    for buffer in buffers:
        if not isinstance(buffer.ty, tvm.tirx.BufferType):
            raise ValueError(f"program {source}: {buffer.name} is no buffer; every parameter must be one")
        if not all(isinstance(extent, (int, tvm.tirx.IntImm)) for extent in buffer.shape):
            raise ValueError(f"program {source}: {buffer.name} has a dynamic shape; give it one that is fixed")
        if any(int(extent) < 1 for extent in buffer.shape):
            raise ValueError(f"program {source}: {buffer.name} is empty, its shape is {[int(e) for e in buffer.shape]}")
        if str(buffer.dtype) not in DTYPES:
            raise ValueError(f"program {source}: {buffer.name} is {buffer.dtype}; allowed: {', '.join(DTYPES)}")
    try:
        schedule = s_tir.Schedule(tvm.IRModule({"main": function.with_attr("global_symbol", "main")}))
        blocks = schedule.get_child_blocks(schedule.get_sblock("root", "main"))
        written = [region.source for block in blocks for region in schedule.get(block).writes]
    except Exception as error:
        raise ValueError(f"program {source}: TVM cannot schedule it ({one_line(error)})") from None
    outputs = [buffer.name for buffer in buffers if any(buffer.same_as(each) for each in written)]
    if outputs != [buffers[-1].name]:
        raise ValueError(f"program {source}: it must write its last parameter alone, it writes {', '.join(outputs) or 'none'}")


def save(function, folder):
    """Write a PrimFunc to a file of the folder that is named after what it holds; returns its path."""
    import tvm

    text = tvm.ir.save_json(tvm.IRModule({"main": function.with_attr("global_symbol", "main")}))
    path = Path(folder) / f"program-{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
    if not path.exists():
        write_whole(path, text)
    return path


def one_line(error):
    """An exception's message, short and without line breaks."""
    return " ".join(str(error).split())[:300]
