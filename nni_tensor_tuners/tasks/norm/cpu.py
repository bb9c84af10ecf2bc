"""The norms of matrices on a CPU: each matrix is summed in parts, and a part into as many sums as its vectors have lanes.

- ``B`` = (blocks that run in parallel, matrices of a block in turn);
- ``K`` = (parts of a matrix that run in parallel, steps, vectors of a step, elements of a vector), from the slowest part of a
  matrix's elements in memory to the fastest.
"""

from ..cpu import ACCUMULATORS
from ..extents import divisors


def extras(task):
    """Nothing: there is no extended space."""
    return {}


def constraints(task, device, extended=False):
    """What can run well on a device; each bound relaxed as far as the task's own divisors demand.

    Vectors are at least one register wide. The sums of a step are enough to keep the multiply-add units busy, and fit the
    register file. There is a block for every core.
    """
    lanes, room = device.vector_lanes, device.vector_lanes * (device.vector_registers - 1)
    widths = divisors(task.size)
    sums = [(count, width) for width in widths for count in divisors(task.size // width) if count * width <= room]
    narrowest = min(lanes, max(width for _, width in sums))
    smallest = min(ACCUMULATORS * lanes, max(count * width for count, width in sums if width >= narrowest))
    least = min(count * width for count, width in sums if width >= narrowest and count * width >= smallest)
    return [
        f"K[3] >= {narrowest}",
        f"{smallest} <= K[2] * K[3] <= {room}",
        f"B[0] * K[0] >= {min(device.cores, task.b * task.size // least)}",
    ]


def schedule(task, config, device=None):
    """The s_tir.Schedule of a task under a configuration, the same for every ``device``."""
    from tvm import s_tir, te

    parts, steps, vectors, width = config["K"]
    x = te.placeholder(task.shapes[0], name="X")
    step, vector, lane, part = (
        te.reduce_axis((0, extent), name=name)
        for extent, name in ((steps, "step"), (vectors, "vector"), (width, "lane"), (parts, "part"))
    )

    def square(i, p, v, w):
        at = ((p * steps + step) * vectors + v) * width + w
        element = x[i, at // task.m, at % task.m]
        return te.sum(element * element, axis=step)

    lanes = te.compute((task.b, parts, vectors, width), square, name="lanes")
    sums = te.compute((task.b, parts), lambda i, p: te.sum(lanes[i, p, vector, lane], axis=[vector, lane]), name="parts")
    total = te.compute((task.b,), lambda i: te.sum(sums[i, part], axis=part), name="total")
    z = te.compute((task.b,), lambda i: te.sqrt(total[i]), name="Z")
    sch = s_tir.Schedule(te.create_prim_func([x, z]), error_render_level="fast")
    of_lanes, of_parts, of_total = (sch.get_sblock(name) for name in ("lanes", "parts", "total"))
    matrix, p, *_ = sch.get_loops(of_parts)
    block, turn = sch.split(matrix, config["B"])
    sch.reorder(block, p, turn)
    sch.compute_at(of_lanes, turn, preserve_unit_loops=True)
    v, w, s = sch.get_loops(of_lanes)[-3:]
    sch.reorder(s, v, w)
    sch.parallel(sch.fuse(block, p))
    sch.vectorize(w)
    sch.unroll(v)
    init = sch.decompose_reduction(of_lanes, s)
    sch.vectorize(sch.get_loops(init)[-1])
    sch.compute_at(of_total, sch.get_loops(sch.get_sblock("Z"))[0])
    return sch
