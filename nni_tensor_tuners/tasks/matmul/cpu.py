"""A CPU matrix multiplication, or a batch of them, over the factorisations of the papers' CUDA ones.

- ``X`` = (n1, n2, n3, n4) of n and ``Y`` = (m1, m2, m3, m4) of m: n1 x m1 blocks run in parallel; inside, n2 x m2 tiles whose
  result stays in cache, made of n3 x m3 register tiles of n4 rows by m4 columns, the columns vectorised;
- ``B`` = (b1, b2) of b, for a batch: b1 x n1 x m1 blocks run in parallel, each with b2 matrices in turn;
- ``K`` = (k1, k2, k3) of k: panels, each multiplied into the whole tile before the next one; k2 steps; k3 unrolled steps. With one
  panel alone a register tile is complete once it is computed, and is written where it belongs.

A panel of Y is packed first where it would not stay in cache as it lies and is used often enough to pay for it (`packs`).
"""

from itertools import product
from math import gcd, prod

from ..cpu import ACCUMULATORS, UNROLL_STEPS
from ..extents import divisors
from ..neighbours import results_of
from . import dot

# Rows of Y this many bytes apart share the lines of a level-1 cache, which has a way per page on all common CPUs; of such rows
# a panel may have as many as this before it is packed, and a packed one is multiplied with at least so many rows of X.
CACHE_WAY = 4096
ROWS_SHARING_LINES = 16
ROWS_USING_A_COPY = 16
# What part of the time cores may wait for others, before there are more blocks.
IDLE = 0.1
# Bytes of the smallest level-1 cache that common CPUs have, and of half a level-2 cache.
LEVEL_1, HALF_LEVEL_2 = 1 << 15, 1 << 19


def extras(task):
    """Nothing: there is no extended space."""
    return {}


def constraints(task, device, extended=False, columns=1):
    """What can run well on a device; each bound relaxed as far as the task's own divisors demand.

    Vectors are at least one register wide. A register tile has enough independent accumulators to keep the multiply-add units
    busy, and fits the register file beside a row of Y and a broadcast element of X. There is a block for every core.

    Parameters
    ----------
    device
        A `Device` with ``vector_lanes`` (float32 in a register), ``vector_registers`` and ``cores``.
    extended
        There is only one space on a CPU.
    columns
        Register tiles have a multiple of so many.
    """
    narrowest, smallest, room = _bounds(task, device, columns)
    return [
        *([f"Y[3] % {columns} == 0"] if columns > 1 else []),
        f"Y[3] >= {narrowest}",
        f"X[3] * Y[3] >= {smallest}",
        f"(X[3] + 1) * Y[3] <= {room}",
        f"{'B[0] * ' if task.operator == 'batch_matmul' else ''}X[0] * Y[0] >= {_blocks(task, device, columns)}",
    ]


def _bounds(task, device, columns):
    """Of a register tile: the fewest columns, the fewest results, and the most of these together with a row of Y."""
    lanes = device.vector_lanes
    room = lanes * (device.vector_registers - 1)
    tiles = [(x, y) for x, y in _tiles(task, columns) if (x + 1) * y <= room]
    narrowest = min(lanes, max(y for _, y in tiles))
    return narrowest, min(ACCUMULATORS * lanes, max(x * y for x, y in tiles if y >= narrowest)), room


def _tiles(task, columns):
    return [(x, y) for x in divisors(task.n) for y in divisors(task.m) if y % columns == 0]


def _register_tiles(task, device, columns):
    """The (rows, columns) of register tiles that the bounds allow."""
    narrowest, smallest, room = _bounds(task, device, columns)
    return [(x, y) for x, y in _tiles(task, columns) if y >= narrowest and x * y >= smallest and (x + 1) * y <= room]


def _blocks(task, device, columns):
    """The fewest blocks: one for each core, if there are so many register tiles."""
    return min(device.cores, _results(task) // min(x * y for x, y in _register_tiles(task, device, columns)))


def _results(task):
    return getattr(task, "b", 1) * task.n * task.m


def sound(task, device, columns=1):
    """A configuration that is seldom far from the best, known without measuring.

    The register tile is two vectors wide where it can be, and takes half of the register file. A tile is two of them wide and has all
    rows of its block: the panel of Y that they pass over has all of k where it is small, else what stays in a level-1 cache beside
    rows of X. There are as few blocks as keep the cores busy: of matrices first, then of columns, so that each core packs what it
    uses itself, then of rows.
    """
    lanes, half = device.vector_lanes, device.vector_lanes * device.vector_registers // 2
    wanted = _blocks(task, device, columns)
    rows, columns = min(
        (tile for tile in _register_tiles(task, device, columns) if _results(task) // prod(tile) >= wanted),
        key=lambda tile: (tile[1] % lanes > 0, prod(tile) > half, abs(tile[1] - 2 * lanes), half - prod(tile)),
    )
    wide = 2 if task.m // columns % 2 == 0 and _results(task) // (2 * rows * columns) >= wanted else 1
    panel = max(k for k in divisors(task.k) if k == 1 or 4 * k * (rows + columns) <= LEVEL_1)
    if 4 * task.k * columns * wide <= HALF_LEVEL_2:
        panel = task.k
    extents = getattr(task, "b", 1), task.m // columns // wide, task.n // rows
    ways = product(*map(divisors, extents))
    of_batch, of_columns, of_rows = min(
        (blocks for blocks in ways if prod(blocks) >= wanted), key=lambda blocks: _dearness(blocks, device.cores)
    )
    return {
        **({"B": [of_batch, task.b // of_batch]} if task.operator == "batch_matmul" else {}),
        "X": [of_rows, 1, extents[2] // of_rows, rows],
        "Y": [of_columns, extents[1] // of_columns, wide, columns],
        "K": [task.k // panel, panel, 1],
    }


def _dearness(blocks, cores):
    """Of ways to make blocks, of so many matrices, columns and rows, the one with the least of this is taken."""
    count = prod(blocks)
    turns = -(-count // cores)
    idle = 1 - count / (turns * cores)
    return max(idle, IDLE), count, blocks[::-1]


def schedule(task, config, device=None, program=None, block="Z", of_bytes=None):
    """The s_tir.Schedule of a task under a configuration, the same for every ``device``.

    Parameters
    ----------
    program, block
        A module whose ``block`` is the task, with elementwise stages after it (`recognise`); left out, the task's own.
    of_bytes
        The type of X, where the block multiplies bytes, four for each of the task's elements, by instructions (`dot`).
    """
    from tvm import s_tir

    steps = dot.STEPS if of_bytes else 1
    sch = s_tir.Schedule(program or task.prim_func(), error_render_level="fast")
    z = sch.get_sblock(block)
    at_once = config["K"][0] == 1
    z_tile = results_of(sch, z, "global") if sch.get_consumers(z) or not at_once else None
    packed, transposed = bool(of_bytes) or packs(task, config), task.layout[1] == "T"
    if packed:
        y_panel = sch.cache_read(z, 1, "global")
        width = config["Y"][3]

        def as_read(*place):
            *batch, row, column = (*place[:-2], place[-1], place[-2]) if transposed else place
            place = [*batch, column // width, row // steps, column % width]
            return [*place, row % steps] if of_bytes else place

        sch.transform_layout(z, ("read", 1), as_read)
    *batch, i, j, k = sch.get_loops(z)
    b_block, b_turn = zip(*(sch.split(b, config["B"]) for b in batch)) if batch else ((), ())
    i_block, i_tile, i_register, i_row = sch.split(i, config["X"])
    j_block, j_tile, j_register, j_vector = sch.split(j, config["Y"])
    k_panel, k_step, k_unrolled, *instruction = sch.split(k, [*config["K"], *([steps] if of_bytes else [])])
    if of_bytes:
        j_vector, j_lane = sch.split(j_vector, [None, dot.COLUMNS])
        instruction = [j_lane, *instruction]
    # Columns outside rows: a panel of Y stays in the nearest cache while all the rows of the tile pass over it.
    registers = [j_register, i_register]
    sch.reorder(
        *(*b_block, i_block, j_block, *b_turn, i_tile, j_tile),
        *((*registers, k_panel) if at_once else (k_panel, *registers)),
        *(k_step, k_unrolled, i_row, j_vector, *instruction),
    )
    if packed:
        sch.compute_at(y_panel, j_tile if at_once else k_panel, preserve_unit_loops=True)
        if of_bytes:
            _interleave(sch, y_panel, transposed)
        elif not transposed:
            sch.vectorize(sch.split(sch.get_loops(y_panel)[-1], [None, width])[-1])
    blocks = sch.fuse(*b_block, i_block, j_block)
    sch.parallel(blocks)
    if not of_bytes:
        sch.vectorize(j_vector)
    if z_tile is not None:
        sch.reverse_compute_at(z_tile, i_register if at_once else j_tile, preserve_unit_loops=True)
        sch.vectorize(sch.split(sch.get_loops(z_tile)[-1], [None, config["Y"][3]])[-1])
    sch.annotate(blocks, "pragma_auto_unroll_max_step", UNROLL_STEPS)
    sch.annotate(blocks, "pragma_unroll_explicit", 1)
    zeros = sch.decompose_reduction(z, k_panel)
    if of_bytes:
        dot.register()
        sch.vectorize(sch.get_loops(zeros)[-1])
        sch.tensorize(j_lane, dot.DOT.format(of_bytes))
    return sch


def _interleave(sch, y_panel, transposed):
    """Pack a panel of bytes: four rows of Y side by side."""
    *_, row, column = sch.get_loops(y_panel)
    if transposed:
        sch.vectorize(sch.split(column, [None, dot.STEPS])[-1])
        return
    (rows, step), (columns, lane) = sch.split(row, [None, dot.STEPS]), sch.split(column, [None, dot.COLUMNS])
    sch.reorder(rows, columns, lane, step)
    dot.register()
    sch.tensorize(lane, dot.INTERLEAVE)


def packs(task, config):
    """Whether a panel of Y is copied to a buffer of its own, where it lies in the order that register tiles read it.

    A transposed one always is: its columns lie apart. Another is where it has too many rows at a distance that puts them into
    the same lines of the cache, so that they throw each other out, and enough rows of X pass over it.
    """
    if task.layout[1] == "T":
        return True
    distance = task.m * 4
    sharing = config["K"][1] * config["K"][2] * gcd(distance, CACHE_WAY) / CACHE_WAY
    return sharing > ROWS_SHARING_LINES and config["X"][2] * config["X"][3] >= ROWS_USING_A_COPY
