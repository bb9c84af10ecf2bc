"""The norms of matrices on CUDA: each matrix is summed by threads of one block, first each for itself, then across them.

- ``B`` = (blocks, matrices of a block, each with threads of its own);
- ``K`` = (steps, loads of a step, threads, elements that one load copies), from the slowest part of a matrix's elements in
  memory to the fastest, so that neighbouring threads read neighbouring elements.

Threads that fill warps or divide one add up their sums by shuffles; others leave them in shared memory, where each adds up all.
"""

from math import gcd

from ..cuda import WARP
from ..extents import divisors

WIDEST = 4  # float32 that one instruction loads


def extras(task):
    """Nothing: there is no extended space."""
    return {}


def constraints(task, device, extended=False):
    """What a device can run: threads in a block (and a warp of them at least, where the task's divisors allow one), vectors
    that lie in one row, loads that the registers of a thread hold, and blocks of a grid."""
    threads = [b * k for b in divisors(task.b) for k in divisors(task.size) if b * k <= device.threads]
    return [
        f"{min(WARP, max(threads))} <= B[1] * K[2] <= {device.threads}",
        f"{gcd(WIDEST, task.m)} % K[3] == 0",
        f"K[1] * K[3] + 1 <= {device.registers}",
        *([f"B[0] <= {device.grid_x}"] if task.b > device.grid_x else []),
    ]


def schedule(task, config, device=None):
    """The s_tir.Schedule of a task under a configuration, the same for every ``device``."""
    from tvm import s_tir, te

    steps, loads, threads, width = config["K"]
    step, load, vector, thread = (
        te.reduce_axis((0, extent), name=name)
        for extent, name in ((steps, "step"), (loads, "load"), (width, "vector"), (threads, "thread"))
    )

    def squares(i, t):
        element = loaded[i, ((step * loads + load) * threads + t) * width + vector]
        return te.sum(element * element, axis=[step, load, vector])

    x = te.placeholder(task.shapes[0], name="X")
    loaded = te.compute((task.b, task.size), lambda i, at: x[i, at // task.m, at % task.m], name="loaded")
    parts = te.compute((task.b, threads), squares, name="parts")
    total = te.compute((task.b,), lambda i: te.sum(parts[i, thread], axis=thread), name="total")
    z = te.compute((task.b,), lambda i: te.sqrt(total[i]), name="Z")
    sch = s_tir.Schedule(te.create_prim_func([x, z]), error_render_level="fast")
    loaded, parts, total, z = map(sch.get_sblock, ("loaded", "parts", "total", "Z"))
    block, matrix = sch.split(sch.get_loops(z)[0], config["B"])
    sch.bind(block, "blockIdx.x")
    sch.bind(matrix, "threadIdx.y")
    sch.compute_at(total, matrix, preserve_unit_loops=True)
    across = sch.get_loops(total)[-1]
    shuffles = WARP % threads == 0 or threads % WARP == 0
    if shuffles:
        sch.bind(across, "threadIdx.x")
        sch.compute_at(parts, across, preserve_unit_loops=True)
    else:  # TVM would take the threads of a warp to run in step, which they no longer do since compute capability 7.0
        sch.compute_at(parts, matrix, preserve_unit_loops=True)
        sch.bind(sch.get_loops(parts)[-4], "threadIdx.x")
    for each, scope in ((loaded, "local"), (parts, "local" if shuffles else "shared"), (total, "local")):
        sch.set_scope(each, 0, scope)
    *_, step, load, _ = sch.get_loops(parts)
    sch.compute_at(loaded, load, preserve_unit_loops=True)
    sch.vectorize(sch.get_loops(loaded)[-1])
    sch.unroll(load)
    sch.decompose_reduction(parts, step)
    return sch
