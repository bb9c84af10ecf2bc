"""Direct convolution on CUDA over one to three dimensions, as TVM's own schedule does it for two (conv2d_direct, TVM v0.6).

The configuration, for two dimensions; one has no ``y``, three have ``z`` before it:

- ``tile_f``, ``tile_y``, ``tile_x``: the output channels of a group and the output's extents as (blocks, virtual threads,
  threads, elements of a thread);
- ``tile_rc``, ``tile_ry``, ``tile_rx``: the input channels of a group and the kernel's extents as (steps, each of which copies
  a tile of X and of W to shared memory; extent of that tile);
- ``tile_g``, grouped convolutions only: the groups as (blocks, threads);
- ``auto_unroll_max_step``, ``unroll_explicit``: loops are unrolled, by TVM or by the compiler of CUDA, as long as the body
  stays below so many statements.

The extended space adds ``vector`` (where the extents let some configuration use it), ``pad`` and ``stages`` (see `cuda`).
"""

from itertools import product
from math import prod

from ...space.constraints import Constraint
from ..cuda import (
    EXTENDED,
    VTHREADS,
    WARP,
    bind,
    bind_unit_loop,
    fetch_together,
    most_shared,
    pad_rows,
    pipeline,
    shared_scope,
    unroll,
)
from ..device import GENERIC
from ..extents import divisors


def _strides(task):
    """Steps of the windows: a transposed convolution is done as one of stride 1 over X with zeros between its elements."""
    return (1,) * len(task.image) if task.transposed else task.stride


def extras(task):
    """What the extended space adds, as search-space JSON."""
    added = dict(EXTENDED)
    if len(_widths(task)) > 1:
        added["vector"] = {"_type": "discrete", "_value": _widths(task)}
    else:
        del added["vector"]
    return added


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
    groups = task.groups
    names = [f"tile_{axis}" for axis in task.axes]
    threads = " * ".join(["tile_f[2]", *(["tile_g[1]"] if groups > 1 else []), *(f"{name}[2]" for name in names)])
    shared, tiles = _shared(task, extended)
    positions = " * ".join(f"{name}[1] * {name}[3]" for name in names)
    # A thread's accumulators, and the elements of W and X that it multiplies by each other.
    registers = f"tile_f[1] * tile_f[3] * ({positions} + 1) + {positions}"
    useful = []
    if extended:
        vector = "vector" if len(_widths(task)) > 1 else "1"
        held = " + ".join(f"(({tile} - 1) // ({threads} * {vector}) + 1) * {vector}" for tile in tiles)
        registers = f"{registers} + (stages - 1) * ({held})"
        steps = " * ".join(f"tile_r{name}[0]" for name in ("c", *task.axes))
        useful = [f"{steps} >= stages", *([" or ".join(_in_vectors(task))] if vector == "vector" else [])]
    blocks_z = f"{task.batch} * {'tile_g[0] * ' if groups > 1 else ''}tile_f[0]"
    most_z, most_y, most_x = task.batch * task.out_channels, prod(task.output[:-1]), task.output[-1]
    return [
        f"{_fewest_threads(task, device)} <= {threads} <= {device.threads}",
        f"tile_f[1] * {' * '.join(f'{name}[1]' for name in names)} <= {VTHREADS}",
        f"4 * ({shared}) <= {most_shared(device)}",
        f"{registers} <= {device.registers}",
        *([f"{blocks_z} <= {device.grid_yz}"] if most_z > device.grid_yz else []),
        *([f"{' * '.join(f'{name}[0]' for name in names[:-1])} <= {device.grid_yz}"] if most_y > device.grid_yz else []),
        *([f"{names[-1]}[0] <= {device.grid_x}"] if most_x > device.grid_x else []),
        *useful,
    ]


def _shared(task, extended):
    """Elements that a block's tiles take in shared memory, and the tiles of X and of W without padding, as expressions."""
    groups, names = task.groups, [f"tile_{axis}" for axis in task.axes]
    into, out_of = task.in_channels // groups, task.out_channels // groups
    channels, features = "tile_rc[1]", "tile_f[1] * tile_f[2] * tile_f[3]"
    x_channels = w_channels = channels
    if groups > 1:
        # From the first group's first channel to the last one's last, whatever lies between.
        x_channels = f"({channels} + (tile_g[1] - 1) * {into})"
        if task.transposed:
            w_channels = x_channels
        else:
            features = f"({features} + (tile_g[1] - 1) * {out_of})"
    taps = [f"tile_r{axis}[1]" for axis in task.axes]
    windows = [
        f"({_times(f'{name}[1] * {name}[2] * {name}[3]', stride)} + {_times(tap, dilation)} + 1)"
        for name, tap, stride, dilation in zip(names, taps, _strides(task), task.dilation)
    ]
    *rows, row = [x_channels, *windows]
    x_tile, w_tile = " * ".join([*rows, row]), " * ".join([w_channels, features, *taps])
    shared = f"{x_tile} + {w_tile}"
    if extended:
        x_rows, w_rows = " * ".join(rows), features if not task.transposed else f"{w_channels} * {features}"
        shared = f"{shared} + pad * ({x_rows} + {w_rows})"
    return shared, (x_tile, w_tile)


def _times(extent, step):
    """How far the last of so many positions lies from the first, as an expression."""
    return f"({extent} - 1)" + (f" * {step}" if step > 1 else "")


def _fewest_threads(task, device):
    """A warp; fewer where no block with so many threads of one element each fits shared memory."""
    groups, most = task.groups, 1
    into, out_of = task.in_channels // groups, task.out_channels // groups
    # (threads, elements of the window) of the spatial dimensions.
    spatial = {(1, 1)}
    for extent, stride in zip(task.output, _strides(task)):
        spatial = {
            (threads * across, window * ((across - 1) * stride + 1))
            for threads, window in spatial
            for across in divisors(extent)
            if threads * across <= device.threads
        }
    for g, f in product(divisors(groups), divisors(out_of)):
        channels = 1 + (g - 1) * into
        weights = channels * f if task.transposed else f + (g - 1) * out_of
        room = most_shared(device) // 4 - weights
        sizes = [threads * g * f for threads, window in spatial if channels * window <= room]
        most = max([most, *(size for size in sizes if size <= device.threads)])
        if most >= WARP:
            break
    return min(WARP, most)


def _filter_row(task):
    """The reduced axis along which W's elements lie next to each other, as (name, extent): ("rx", 3) say.

    It is the last one of more than one element. Several axes that are next to each other would do as well, but then TVM does
    not see that the indices of a vector are.
    """
    axes = [(f"r{axis}", extent) for axis, extent in zip(task.axes, task.kernel)]
    if not task.transposed:
        axes.insert(0, ("rc", task.in_channels // task.groups))
    return next((axis for axis in reversed(axes) if axis[1] > 1), axes[-1])


def _widths(task):
    """Widths of vectors that some configuration can use."""
    rows = [_filter_row(task)[1], *([] if task.pads else [task.image[-1]])]
    return [width for width in EXTENDED["vector"]["_value"] if any(row % width == 0 for row in rows)]


def _in_vectors(task):
    """Expressions: that all rows of X's tile, and those of W's, are made of vectors that start at a multiple of their width."""
    of_w = f"tile_{_filter_row(task)[0]}[1] % vector == 0"
    if task.pads:
        return "vector == 1", of_w  # zeros are not read from anywhere
    step, dilation = _strides(task)[-1], task.dilation[-1]
    row = "tile_x[1] * tile_x[2] * tile_x[3]"
    window = f"({row} - 1) * {step} + (tile_rx[1] - 1) * {dilation} + 1"
    starts = [f"{row} * {step}", f"tile_rx[1] * {dilation} * min(tile_rx[0] - 1, 1)"]
    return " and ".join(f"({extent}) % vector == 0" for extent in (task.image[-1], window, *starts)), of_w


def schedule(task, config, device=GENERIC["cuda"]):
    """The s_tir.Schedule of a task under a configuration, paper or extended; an extra that is missing does nothing.

    A device that gives a block more shared memory on request is asked for it where the tiles need it.
    """
    from tvm import s_tir

    scope = shared_scope(_shared(task, "pad" in config)[0], config, device)
    axes, stages = task.axes, config.get("stages", 1)
    sch = s_tir.Schedule(task.prim_func(), error_render_level="fast")
    z = sch.get_sblock("Z")
    z_local = sch.cache_write(z, 0, "local")
    x_shared, w_shared = sch.cache_read(z, 0, scope), sch.cache_read(z, 1, scope)
    if task.pads:
        sch.compute_inline(sch.get_sblock("pad"))  # after the cached read, so into it: padding is never stored in global memory

    image, group, feature, *loops = sch.get_loops(z)
    group_block, group_thread = sch.split(group, config.get("tile_g", [1, 1]))
    f = sch.split(feature, config["tile_f"])
    places = [sch.split(loop, config[f"tile_{axis}"]) for axis, loop in zip(axes, loops)]
    taps = [sch.split(loop, config[f"tile_r{axis}"]) for axis, loop in zip(("c", *axes), loops[len(axes) :])]
    blocks, vthreads, threads, elements = ([f[i], *(place[i] for place in places)] for i in range(4))
    steps, inner = ([tap[i] for tap in taps] for i in range(2))
    sch.reorder(image, group_block, *blocks, *vthreads, group_thread, *threads, *steps, *inner, *elements)
    root = bind(sch, [image, group_block, blocks[0]], "blockIdx.z")
    bind(sch, blocks[1:-1], "blockIdx.y")
    bind(sch, blocks[-1:], "blockIdx.x")
    bind(sch, vthreads[:1], "vthread.z")
    bind(sch, vthreads[1:-1], "vthread.y")
    bind(sch, vthreads[-1:], "vthread.x")
    bind(sch, [group_thread, *threads[:-1]], "threadIdx.y")  # the same threads as with output channels on threadIdx.z
    bind(sch, threads[-1:], "threadIdx.x")
    unit = bind_unit_loop(sch, steps[0])

    sch.reverse_compute_at(z_local, unit, preserve_unit_loops=True)
    # A pipeline runs through one loop, so that the last kernel column of one channel is followed by the next one's first.
    first, step = [sch.fuse(*steps)] * 2 if stages > 1 else (steps[0], steps[-1])
    across = [config.get("tile_g", [1, 1])[1], config["tile_f"][2], *(config[f"tile_{axis}"][2] for axis in axes)]
    threads = {"threadIdx.y": prod(across[:-1]), "threadIdx.x": across[-1]}
    widths = [
        config["vector"] if "vector" in config and Constraint(way, config).holds(config) else 1 for way in _in_vectors(task)
    ]
    tile = [config[f"tile_r{axis}"][1] for axis in ("c", *axes)]
    window = (prod(config["tile_x"][1:]) - 1) * _strides(task)[-1] + (tile[-1] - 1) * task.dilation[-1] + 1
    # Padded are X's rows, and what lies between W's output channels.
    filter_axis, filter_row = (1, prod(tile[1:])) if task.transposed else (0, prod(tile))
    tiles = (x_shared, window, -2), (w_shared, filter_row, filter_axis)
    for (shared, row, axis), width in zip(tiles, widths):
        sch.compute_at(shared, step, preserve_unit_loops=True)
        fetch_together(sch, shared, len(axes) + 2, threads, width)
        pad_rows(sch, shared, axis, row, config.get("pad", 0))
    if stages > 1:
        pipeline(sch, step, [x_shared, w_shared])
    init, depth = sch.decompose_reduction(z, first), len(sch.get_loops(z)) - len(inner) - len(elements)
    outside = depth - (1 if stages > 1 else len(steps))
    inside = [(init, outside), (x_shared, depth), (w_shared, depth), (z, depth), (z_local, outside)]
    unroll(sch, scope, root, inside, config["auto_unroll_max_step"], config["unroll_explicit"])
    return sch
