"""A CPU matrix multiplication, or a batch of them, over the same factorisations as the CUDA one.

- ``X`` = (n1, n2, n3, n4) of n and ``Y`` = (m1, m2, m3, m4) of m: n1 x m1 blocks run in parallel; inside, n2 x m2 tiles whose
  result stays in cache, made of n3 x m3 register tiles of n4 rows by m4 columns, the columns vectorised;
- ``B`` = (b1, b2) of b, for a batch: b1 x n1 x m1 blocks run in parallel, each with b2 matrices in turn;
- ``K`` = (k1, k2, k3) of k: panels, each multiplied into the whole tile before the next one; k2 steps; k3 unrolled steps.
"""

from . import matmul_cuda
from .cuda import divisors

__all__ = ["constraints", "schedule", "search_space"]

# Loops whose body stays below this many statements are unrolled: enough for a register tile, too little to blow up compilation.
UNROLL_STEPS = 64

# A multiply-add takes four cycles and two can start in each, so fewer independent sums would leave the units waiting.
ACCUMULATORS = 8


def search_space(workload, extended=False):
    """Search-space JSON: the papers' CUDA one, so that one file serves both. There is no extended one."""
    return matmul_cuda.search_space(workload)


def constraints(workload, device, extended=False):
    """What can run well on a device; each bound relaxed as far as the workload's own divisors demand.

    Vectors are at least one register wide. A register tile has enough independent accumulators to keep the multiply-add units
    busy, and fits the register file beside a row of Y and a broadcast element of X. There is a block for every core.

    Parameters
    ----------
    device
        A `Device` with ``vector_lanes`` (float32 in a register), ``vector_registers`` and ``cores``.
    extended
        There is only one space on a CPU.
    """
    lanes = device.vector_lanes
    room = lanes * (device.vector_registers - 1)
    tiles = [(x, y) for x in divisors(workload.n) for y in divisors(workload.m) if (x + 1) * y <= room]
    narrowest = min(lanes, max(y for _, y in tiles))
    smallest = min(ACCUMULATORS * lanes, max(x * y for x, y in tiles if y >= narrowest))
    legal = [x * y for x, y in tiles if y >= narrowest and x * y >= smallest]
    batch = getattr(workload, "b", 1)
    blocks = min(device.cores, batch * workload.n * workload.m // min(legal))
    return [
        f"Y[3] >= {narrowest}",
        f"X[3] * Y[3] >= {smallest}",
        f"(X[3] + 1) * Y[3] <= {room}",
        f"{'B[0] * ' if workload.operator == 'batch_matmul' else ''}X[0] * Y[0] >= {blocks}",
    ]


def schedule(workload, config):
    """The s_tir.Schedule of a workload under a configuration."""
    from tvm import s_tir

    sch = s_tir.Schedule(workload.prim_func(), error_render_level="fast")
    z = sch.get_sblock("Z")
    z_tile = sch.cache_write(z, 0, "global")
    transposed = workload.layout[1] == "T"
    if transposed:  # columns lie apart, so a panel of them is packed first
        y_panel = sch.cache_read(z, 1, "global")
        sch.transform_layout(z, ("read", 1), lambda *place: [*place[:-2], place[-1], place[-2]])
    *batch, i, j, k = sch.get_loops(z)
    b_block, b_turn = zip(*(sch.split(b, config["B"]) for b in batch)) if batch else ((), ())
    i_block, i_tile, i_register, i_row = sch.split(i, config["X"])
    j_block, j_tile, j_register, j_vector = sch.split(j, config["Y"])
    k_panel, k_step, k_unrolled = sch.split(k, config["K"])
    # Columns outside rows: a panel of Y stays in the nearest cache while all the rows of the tile pass over it.
    sch.reorder(
        *(*b_block, i_block, j_block, *b_turn, i_tile, j_tile),
        *(k_panel, j_register, i_register, k_step, k_unrolled, i_row, j_vector),
    )
    sch.reverse_compute_at(z_tile, j_tile, preserve_unit_loops=True)
    if transposed:
        sch.compute_at(y_panel, k_panel, preserve_unit_loops=True)
    blocks = sch.fuse(*b_block, i_block, j_block)
    sch.parallel(blocks)
    sch.vectorize(j_vector)
    copied = sch.get_loops(z_tile)[-1]
    sch.vectorize(sch.split(copied, [None, config["Y"][3]])[-1])
    sch.annotate(blocks, "pragma_auto_unroll_max_step", UNROLL_STEPS)
    sch.annotate(blocks, "pragma_unroll_explicit", 1)
    sch.decompose_reduction(z, k_panel)
    return sch
