"""A tensor program as a task: any TIR PrimFunc, searched through TVM's own sketches."""

import functools
import hashlib
import json
from abc import abstractmethod
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

from ..shared import known_file, shared_folder, write_whole
from ..target import target_of
from ..task import Task, shape_field
from . import default, dlight, sketches
from .load import check_program, load, save

# The largest error that is right, relative to the largest expected output: schedules add up in another order, and round to the
# type of the output. Integers must be the same.
TOLERANCES = {"float64": 1e-10, "float32": 1e-4, "float16": 2e-2, "bfloat16": 1e-1}
# Stands for DLight's schedule, which no search space has.
DLIGHT = {sketches.SKETCH: {"_name": dlight.NAME}}


class ProgramTask(Task):
    """A task that is a TIR PrimFunc, of which the last buffer is the output.

    Its configurations are decisions of MetaSchedule's sketches for the device (`sketches`). The expected output is that of the
    program as it is, compiled with nothing but its outermost loops parallel.
    """

    numpy = False

    @abstractmethod
    def prim_func(self):
        """The program, a PrimFunc as `load.check_program` wants it."""

    @functools.cached_property
    def source(self):
        """The program as an IRModule, its function called "main"."""
        import tvm

        function = self.prim_func()
        check_program(function, self.operator)
        return tvm.IRModule({"main": function.with_attr("global_symbol", "main").with_attr("tirx.noalias", True)})

    @property
    def flop(self):
        """As TVM counts them; the elements of the output where it counts none."""
        from tvm import s_tir

        return int(s_tir.analysis.estimate_tir_flops(self.source)) or prod(self.shapes[-1])

    @property
    def buffers(self):
        return tuple(buffer.name for buffer in self._buffers())

    @property
    def shapes(self):
        return [tuple(int(extent) for extent in buffer.shape) for buffer in self._buffers()]

    @property
    def dtypes(self):
        return [str(buffer.dtype) for buffer in self._buffers()]

    @property
    def tolerance(self):
        return TOLERANCES.get(self.dtypes[-1], 0.0)

    def inputs(self, seed=0):
        """Numbers uniform in [-1, 1), integers from -8 (or 0) to 7; the same for the same seed."""
        import numpy as np

        rng = np.random.default_rng(seed)
        return [random_array(rng, shape, dtype) for shape, dtype in zip(self.shapes[:-1], self.dtypes[:-1])]

    def reference(self, *inputs, out=None):
        """The output of the program as it is."""
        import numpy as np
        import tvm  # makes bfloat16 known to NumPy

        from ..device import find_device

        output = np.zeros(self.shapes[-1], self.dtypes[-1]) if out is None else out
        arguments = [tvm.runtime.tensor(np.ascontiguousarray(array)) for array in (*inputs, output)]
        tvm.compile(outermost_parallel(self.source), target=target_of(find_device("cpu"))).mod["main"](*arguments)
        output[...] = arguments[-1].numpy()
        return output

    def search_space(self, device, extended=False):
        return sketches.search_space(self.sketches(device))

    def constraints(self, device, extended=False):
        return sketches.constraints(self.sketches(device))

    def schedule(self, config, device):
        """The ``s_tir.Schedule`` of a configuration."""
        schedule, taken = sketches.schedule(self.source, self.sketches(device), config, target_of(device))
        if taken != config:
            raise ValueError(f"TVM takes other decisions than these: {sketches.difference(config, taken)}")
        return schedule

    def module(self, config, device):
        if config == DLIGHT:
            import tvm

            return dlight.scheduled(tvm.IRModule({"main": self.source["main"]}), device)  # which TVM changes
        return self.schedule(config, device).mod

    def built(self, config, device):
        if config == DLIGHT:
            return self.module(config, device)
        return _builder(self, device)(config)[0]

    def settler(self, device):
        return sketches.settler(self.sketches(device), target_of(device), _builder(self, device))

    def first(self, device):
        return default.first(self.sketches(device), device)

    def defaults(self, device):
        """Configurations that are sound, known without measuring.

        On a CPU those of the search space that a search begins with (`first`). On a GPU DLight's schedule, which has no place there,
        and no ``schedule``.
        """
        if device.kind == "cuda":
            return [DLIGHT]
        return [*filter(None, map(self.settler(device), self.first(device)))]

    def default(self, device):
        """The first of the `defaults`; None if there is none."""
        return next(iter(self.defaults(device)), None)

    def sketches(self, device):
        """TVM's sketches for a device, made once for all processes: making them takes seconds."""
        return _sketches(self, device)

    def _buffers(self):
        return self.source["main"].params


def random_array(rng, shape, dtype):
    """An array of an element type by TVM's name; integers are small, so that sums of products of them do not overflow."""
    if "int" in dtype:
        return rng.integers(0 if dtype.startswith("u") else -8, 8, shape).astype(dtype)
    return rng.uniform(-1, 1, shape).astype(dtype)


@functools.lru_cache(64)
def _sketches(task, device):
    import tvm

    allows = replace(device, name="", identity="", rpc="", key="")  # all that allow the same have the same sketches
    key = json.dumps([tvm.__version__, sketches.VERSION, repr(allows), str(target_of(device)), tvm.ir.save_json(task.source)])
    path = shared_folder() / f"sketches-{hashlib.sha256(key.encode()).hexdigest()[:24]}.json"
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        found = sketches.generate(task.source, device)
    write_whole(path, json.dumps(found))
    return found


@functools.lru_cache(64)
def _builder(task, device):
    return sketches.builder(task.source, task.sketches(device), target_of(device))


def outermost_parallel(module):
    """A module with the outermost spatial loop of each block parallel, and nothing else done to it."""
    from tvm import s_tir

    schedule = s_tir.Schedule(module, error_render_level="none")
    for block in schedule.get_child_blocks(schedule.get_sblock("root", "main")):
        loops = schedule.get_loops(block)
        try:
            if loops and schedule.get(loops[0]).kind == 0:
                schedule.parallel(loops[0])
        except s_tir.ScheduleError:  # a loop that reduces, or that another block has made parallel
            continue
    return schedule.mod


@dataclass(frozen=True)
class Program(ProgramTask):
    """A program that stands in a file as TVM writes it: ``tvm.ir.save_json`` of a PrimFunc or of an IRModule of one.

    Attributes
    ----------
    path
        The file; or "module.py:function", "package.module:function" (`load.load`), of which a file is made.
    sha256
        Of the file; left out, whatever it is. A program that has changed since is an error, not another kernel's answer.
    """

    path: str = shape_field("program: a module saved as JSON, or module.py:function")
    sha256: str = shape_field("program: of the file (default: whatever it is)", "")

    operator = "program"

    def __post_init__(self):
        path = Path(self.path).expanduser()
        if path.suffix != ".json":
            path = save(load(self.path), shared_folder())
        path, sha256 = known_file(self.operator, path, self.sha256)
        object.__setattr__(self, "path", path)
        object.__setattr__(self, "sha256", sha256)

    def imports(self, device):
        # Of the file's text, since a trial asks, which does not import TVM.
        if device.kind == "cuda" and sketches.has_tensor_types(Path(self.path).read_text(encoding="utf-8")):
            return (sketches.CUDA_INSTRUCTIONS,)
        return ()

    def copied_to(self, path):
        """The same program in a file of its own."""
        Path(path).write_bytes(Path(self.path).read_bytes())
        return Program(str(path), self.sha256)

    def digest(self):
        return self.sha256  # wherever the file lies

    def prim_func(self):
        return load(self.path)
