"""A CPU convolution of any kind, as a matrix multiplication whose second operand is packed on the way.

Rows are output channels, columns output positions, and what is summed over input channels and kernel positions.

- ``tile_f`` of a group's output channels and ``tile_y``, ``tile_x`` (``tile_z``) of the output's extents, 4 factors each:
  blocks that run in parallel, together with images and groups; tiles whose sums stay in cache; register tiles; and in a
  register tile that many channels by that many positions, the positions vectorised together, whatever their shape;
- ``tile_g`` of the groups, 2 factors, where there are several: blocks, and groups that one block does in turn;
- ``tile_rc`` of a group's input channels and ``tile_ry``, ``tile_rx`` (``tile_rz``) of the kernel's extents, 2 factors each:
  panels of data, each packed so that a register tile's positions lie side by side, then used by all the channels of the tile;
  and steps;
- ``auto_unroll_max_step``: with ``unroll_explicit`` 1, loops outside the register tiles are unrolled while their bodies stay
  below so many statements; with 0 that is left to LLVM.
"""

from fractions import Fraction
from itertools import product
from math import prod

from ..cpu import ACCUMULATORS, UNROLL_STEPS
from ..extents import divisors

# Positions are computed by this many; narrower vector registers share the work.
LANES = 16

# Copies are vectorised by no more than this.
WIDEST = 64

# Below this many output channels a packed panel is used too rarely to pay for the packing.
PACKED_CHANNELS = 4

# At least this part of the lanes computes something that is kept, where the task's divisors allow it.
USED = Fraction(3, 4)


def extras(task):
    """Nothing: there is no extended space."""
    return {}


def constraints(task, device, extended=False):
    """What can run well on a device; each bound relaxed as far as the task's own divisors demand.

    A register tile uses most lanes of its vectors, has enough independent accumulators to keep the multiply-add units busy, and
    fits the register file beside a row of positions and a broadcast weight. There is a block for every core.

    Parameters
    ----------
    device
        A `Device` with ``vector_lanes`` (float32 in a register), ``vector_registers`` and ``cores``.
    extended
        There is only one space on a CPU.
    """
    per_vector = max(1, LANES // device.vector_lanes)
    room = max(2, (device.vector_registers - 1) // per_vector)
    outer = [set(divisors(extent)) for extent in task.output[:-1]]
    widths = divisors(task.output[-1])
    # Ways to cut positions: how many, and the vectors they take.
    cuts = {(prod(cut) * x, _vectors(task, prod(cut), x)) for cut in product(*outer) for x in widths}
    channels = divisors(task.out_channels // task.groups)
    tiles = [(f, count, vectors) for f in channels for count, vectors in cuts if (f + 1) * vectors <= room]
    used = min(USED, max(Fraction(count, LANES * vectors) for _, count, vectors in tiles))
    tiles = [(f, count, vectors) for f, count, vectors in tiles if count >= used * LANES * vectors]
    smallest = min(-(-ACCUMULATORS // per_vector), max(f * vectors for f, _, vectors in tiles))
    positions = prod(task.output)
    most = max(task.out_channels * positions // (f * count) for f, count, vectors in tiles if f * vectors >= smallest)
    blocks = min(device.cores, task.batch * most)
    names = [f"tile_{axis}" for axis in task.axes]
    count = " * ".join(f"{name}[3]" for name in names)
    if _packs(task):
        vectors = f"(({count} + {LANES - 1}) // {LANES})"
    else:
        vectors = " * ".join([*(f"{name}[3]" for name in names[:-1]), f"(({names[-1]}[3] + {LANES - 1}) // {LANES})"])
    copies = [str(task.batch)] * (task.batch > 1) + ["tile_g[0]"] * (task.groups > 1)
    return [
        f"{used.denominator} * {count} >= {used.numerator * LANES} * {vectors}",
        f"tile_f[3] * {vectors} >= {smallest}",
        f"(tile_f[3] + 1) * {vectors} <= {room}",
        f"{' * '.join([*copies, 'tile_f[0]', *(f'{name}[0]' for name in names)])} >= {blocks}",
    ]


def schedule(task, config, device=None):
    """The s_tir.Schedule of a task under a configuration, the same for every ``device``."""
    names = task.axes
    dimensions = len(names)
    tile = [config[f"tile_{axis}"][3] for axis in names]
    packs = _packs(task)
    sch = _program(task, tile)
    tiles, z = sch.get_sblock("tiles"), sch.get_sblock("Z")
    image, group, channel, *loops = sch.get_loops(tiles)
    place, inside = loops[:dimensions], loops[dimensions : 2 * dimensions]
    reduced = loops[2 * dimensions :]
    g_block, g_turn = sch.split(group, config.get("tile_g", [1, 1]))
    f_block, f_tile, f_register, f_row = sch.split(channel, config["tile_f"])
    p_block, p_tile, p_register = zip(*(sch.split(p, config[f"tile_{axis}"][:3]) for p, axis in zip(place, names)))
    panel, step = zip(*(sch.split(r, config[f"tile_r{axis}"]) for r, axis in zip(reduced, ["c", *names])))
    if packs:  # a register tile's positions lie side by side, in vectors that need not end with its rows
        inside = [sch.fuse(*inside)]
    *inside, vector = [*inside[:-1], *sch.split(inside[-1], [None, LANES])]
    sch.reorder(
        *(image, g_block, f_block, *p_block, g_turn, f_tile, *p_tile),
        # Positions outside channels: a panel of a register tile stays in the nearest cache while all channels pass over it.
        *(*panel, *p_register, f_register, *step, f_row, *inside, vector),
    )
    sch.reverse_compute_at(z, p_tile[-1], preserve_unit_loops=True)
    if packs:
        packed = sch.get_sblock("packed")
        sch.compute_at(packed, panel[-1], preserve_unit_loops=True)
        if task.transposed or task.stride[-1] == 1:  # LLVM takes its time over vectors of scattered elements
            _vectorise(sch, sch.get_loops(packed)[-1], _padded_tile(task, tile)[-1])
    blocks = sch.fuse(image, g_block, f_block, *p_block)
    sch.parallel(blocks)
    sch.vectorize(vector)
    _vectorise(sch, sch.get_loops(z)[-1], tile[-1])
    if _pads(task, tile):
        sch.parallel(sch.fuse(*sch.get_loops(sch.get_sblock("pad"))[:2]))
    if config["unroll_explicit"]:
        sch.annotate(blocks, "pragma_auto_unroll_max_step", config["auto_unroll_max_step"])
        sch.annotate(blocks, "pragma_unroll_explicit", 1)
    sch.annotate(step[0], "pragma_auto_unroll_max_step", UNROLL_STEPS)
    sch.annotate(step[0], "pragma_unroll_explicit", 1)
    init = sch.decompose_reduction(tiles, panel[0])
    *places, register, row = sch.get_loops(init)[-len(inside) - 3 - dimensions : -len(inside) - 1]
    sch.reorder(register, row, *places)  # as in memory, or LLVM would unroll thousands of small clearings
    return sch


def _vectorise(sch, loop, run):
    """Vectorise a copy's last loop, ``run`` elements of which lie side by side."""
    sch.vectorize(sch.split(loop, [None, max(width for width in divisors(run) if width <= WIDEST)])[-1])


def _packs(task):
    return task.out_channels // task.groups >= PACKED_CHANNELS


def _vectors(task, rows, width):
    """Vectors that a register tile of so many rows of positions takes, for one channel; where rows are padded, at least."""
    return -(-rows * width // LANES) if _packs(task) else rows * -(-width // LANES)


def _padded_tile(task, tile):
    """The extents of a register tile's positions, enlarged as little as fills whole vectors; unpacked, each row does."""
    if not _packs(task):
        return (*tile[:-1], -(-tile[-1] // LANES) * LANES)
    enlarged = product(*(range(extent, extent + LANES) for extent in tile))
    return min((extents for extents in enlarged if prod(extents) % LANES == 0), key=lambda extents: (prod(extents), extents))


def _reach(task, tile):
    """Spatial extents of the padded input that padded tiles read."""
    strides = [1] * len(tile) if task.transposed else task.stride
    sizes = zip(task.output, tile, _padded_tile(task, tile), strides, task.dilation, task.kernel)
    return [
        (extent - part + padded - 1) * stride + dilation * (kernel - 1) + 1
        for extent, part, padded, stride, dilation, kernel in sizes
    ]


def _pads(task, tile):
    """Whether a stage pads X: for the task's sake or for that of the tiles."""
    return task.pads or any(reach > extent for reach, extent in zip(_reach(task, tile), task.image))


def _program(task, tile):
    """An s_tir.Schedule of the convolution with its positions cut into tiles.

    Its stages are "pad" and "packed", where there is need, "tiles", and "Z". Its results are those of the task's own
    `prim_func`; where tiles are padded, the positions between are computed and left.
    """
    from tvm import s_tir, te

    dimensions = len(tile)
    into, out_of = task.in_channels // task.groups, task.out_channels // task.groups
    strides = [1] * dimensions if task.transposed else task.stride
    counts = [extent // part for extent, part in zip(task.output, tile)]
    padded_tile = _padded_tile(task, tile)
    x, w = (te.placeholder(shape, name=name) for shape, name in zip(task.shapes, "XW"))
    image = task.padded(x, _reach(task, tile)) if _pads(task, tile) else x
    channel, *taps = task.reduce_axes()

    def read(batch, group, outer, c, taps, inner):
        places = zip(outer, tile, inner, strides, taps, task.dilation)
        return image[(batch, group * into + c, *((o * t + i) * s + r * d for o, t, i, s, r, d in places))]

    if _packs(task):
        packed = te.compute(
            (task.batch, task.groups, *counts, into, *task.kernel, *padded_tile),
            lambda batch, group, *i: read(
                batch, group, i[:dimensions], i[dimensions], i[dimensions + 1 : -dimensions], i[-dimensions:]
            ),
            name="packed",
        )

    def total(batch, group, feature, *place):
        outer, inner = place[:dimensions], place[dimensions:]
        if _packs(task):
            data = packed[(batch, group, *outer, channel, *taps, *inner)]
        else:
            data = read(batch, group, outer, channel, taps, inner)
        return te.sum(data * task.weight(w, group, feature, channel, taps), axis=[channel, *taps])

    tiles = te.compute((task.batch, task.groups, out_of, *counts, *padded_tile), total, name="tiles")

    # By tiles here, by positions in memory; TE could only say it the other way round, over domains that padding has made vague.
    z = te.compute(
        (task.batch, task.groups, out_of, *counts, *tile),
        lambda *place: tiles[place],
        name="Z",
    )
    sch = s_tir.Schedule(te.create_prim_func([x, w, z]), error_render_level="fast")
    sch.transform_layout(
        "Z",
        ("write", 0),
        lambda batch, group, feature, *place: [
            batch,
            group * out_of + feature,
            *(outer * part + inner for outer, part, inner in zip(place, tile, place[dimensions:])),
        ],
    )
    return sch
