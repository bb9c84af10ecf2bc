"""CUDA matrix multiplication of OpEvo appendices B.1 and B.2, as TVM's own schedule policy does it (dense, TVM v0.6).

The configuration is three factorisations, four for a batch:

- ``B`` = (b1, b2) of b, batches only: b1 x as many thread blocks, each thread of which computes its part of b2 matrices in
  turn;
- ``X`` = (n1, n2, n3, n4) of n and ``Y`` = (m1, m2, m3, m4) of m: n1 x m1 thread blocks, of n3 x m3 threads, each computing
  n2 x m2 basic tiles (virtual threads) of n4 x m4 elements;
- ``K`` = (k1, k2, k3) of k: stages of data from global memory to shared memory to registers.

The extended space adds ``vector``, ``pad`` and ``stages`` (see `cuda`), and ``unroll``: up to how many statements the body of
loops that are unrolled may have.
"""

from math import prod

from ..cuda import EXTENDED, VTHREADS, WARP, fetch_together, most_shared, pad_rows, pipeline, shared_scope, unroll
from ..device import GENERIC
from ..extents import divisors
from ..neighbours import results_of

# Code size: loops are unrolled explicitly as long as the body stays below this many statements.
UNROLL_STEPS = 512

# Extents of a block's tiles, as expressions: rows of X, columns of Y, and what is summed in one stage.
ROWS = "X[1] * X[2] * X[3]"
COLUMNS = "Y[1] * Y[2] * Y[3]"
DEPTH = "K[1] * K[2]"


def extras(task):
    """What the extended space adds, as search-space JSON."""
    return {**EXTENDED, "unroll": {"_type": "discrete", "_value": [0, 64, 512, 1500]}}


def constraints(task, device, extended=False):
    """What a device can run: threads in a block (and a warp of them at least, where the task's divisors allow one), virtual
    threads, shared memory, registers held by one thread, and blocks of a grid; of an extra that it has something to do.

    Parameters
    ----------
    device
        A `Device` with the limits of CUDA ones.
    extended
        Whether the configurations have the extras.
    """
    blocks = [x * y for x in divisors(task.n) for y in divisors(task.m) if x * y <= device.threads]
    # A thread's accumulators, and the slices of X and Y it holds while it adds to them.
    registers = "X[1] * X[3] * Y[1] * Y[3] + K[2] * (X[1] * X[3] + Y[1] * Y[3])"
    useful = []
    if extended:
        x_row, y_row = (ROWS if task.layout[0] == "T" else DEPTH), (COLUMNS if task.layout[1] == "N" else DEPTH)
        useful = [f"({x_row}) % vector == 0 or ({y_row}) % vector == 0", "K[0] >= stages"]
        held = " + ".join(
            f"(({tile} - 1) // (X[2] * Y[2] * vector) + 1) * vector" for tile in (f"{DEPTH} * {ROWS}", f"{DEPTH} * {COLUMNS}")
        )
        registers = f"{registers} + (stages - 1) * ({held})"
    return [
        f"{min(WARP, max(blocks))} <= X[2] * Y[2] <= {device.threads}",
        f"X[1] * Y[1] <= {VTHREADS}",
        f"4 * {_shared(task, extended)} <= {most_shared(device)}",
        f"{registers} <= {device.registers}",
        *([f"X[0] <= {device.grid_yz}"] if task.n > device.grid_yz else []),
        *([f"Y[0] <= {device.grid_x}"] if task.m > device.grid_x else []),
        *([f"B[0] <= {device.grid_yz}"] if getattr(task, "b", 1) > device.grid_yz else []),
        *useful,
    ]


def _shared(task, extended):
    """Elements of the two tiles in shared memory, as an expression."""
    shared = f"{DEPTH} * ({ROWS} + {COLUMNS})"
    if not extended:
        return shared
    x_rows, y_rows = (DEPTH if task.layout[0] == "T" else ROWS), (DEPTH if task.layout[1] == "N" else COLUMNS)
    return f"({shared} + pad * ({x_rows} + {y_rows}))"


def schedule(task, config, device=GENERIC["cuda"], program=None, block="Z"):
    """The s_tir.Schedule of a task under a configuration, paper or extended; an extra that is missing does nothing.

    A device that gives a block more shared memory on request is asked for it where the tiles need it.

    Parameters
    ----------
    program, block
        A module whose ``block`` is the task, with elementwise stages after it (`recognise`); left out, the task's own.
    """
    from tvm import s_tir

    scope = shared_scope(_shared(task, "pad" in config), config, device)
    sch = s_tir.Schedule(program or task.prim_func(), error_render_level="fast")
    z = sch.get_sblock(block)
    z_local = results_of(sch, z, "local")
    x_shared, x_local = sch.cache_read(z, 0, scope), sch.cache_read(z, 0, "local")
    y_shared, y_local = sch.cache_read(z, 1, scope), sch.cache_read(z, 1, "local")

    *batch, i, j, k = sch.get_loops(z)
    block_z, *matrices = sch.split(batch[0], config["B"]) if batch else [None]
    block_y, vthread_y, thread_y, tile_y = sch.split(i, config["X"])
    block_x, vthread_x, thread_x, tile_x = sch.split(j, config["Y"])
    k_global, k_shared, k_register = sch.split(k, config["K"])
    outside = [block_y, block_x, vthread_y, vthread_x, thread_y, thread_x]
    names = ["blockIdx.y", "blockIdx.x", "vthread.y", "vthread.x", "threadIdx.y", "threadIdx.x"]
    if batch:
        outside, names = [block_z, *outside], ["blockIdx.z", *names]
    sch.reorder(*outside, *matrices, k_global, k_shared, k_register, tile_y, tile_x)
    for loop, name in zip(outside, names):
        sch.bind(loop, name)

    sch.reverse_compute_at(z_local, [thread_x, *matrices][-1], preserve_unit_loops=True)
    vector = config.get("vector", 1)
    threads = {"threadIdx.y": config["X"][2], "threadIdx.x": config["Y"][2]}
    (_, *x_tile), (_, *y_tile), (_, *depth) = config["X"], config["Y"], config["K"]
    # What `bind_unit_loop` is for cannot happen here: X is copied first, and no index it is read at depends on threadIdx.x.
    # The consumer of each pair first: once the shared copy is placed, the local one could no longer be moved inside it.
    for local, shared, row in (
        (x_local, x_shared, x_tile if task.layout[0] == "T" else depth),
        (y_local, y_shared, y_tile if task.layout[1] == "N" else depth),
    ):
        sch.compute_at(local, k_shared, preserve_unit_loops=True)
        sch.compute_at(shared, k_global, preserve_unit_loops=True)
        fetch_together(sch, shared, 2, threads, vector if prod(row) % vector == 0 else 1)
        pad_rows(sch, shared, -2, prod(row), config.get("pad", 0))
    if config.get("stages", 1) > 1:
        pipeline(sch, k_global, [x_shared, y_shared])
    init, depth = sch.decompose_reduction(z, k_global), len(outside) + len(matrices)
    inside = [(init, depth), (x_shared, depth + 1), (y_shared, depth + 1), (z, depth + 1), (z_local, depth)]
    unroll(sch, scope, outside[0], inside, config.get("unroll", UNROLL_STEPS))
    return sch
