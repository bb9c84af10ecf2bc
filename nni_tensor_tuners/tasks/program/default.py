"""A sound schedule of a program on a CPU, known without measuring: where a search begins, and what is left as it is.

Of a sketch that tiles, the register tile is a vector of the last axis by as many results of the others as keep the multiply-add
units busy and fit the register file; sums run through it without a break; the result is written, and what follows computed, tile
by tile. Other sketches are taken as they are. TVM's postprocessors vectorise and run in
parallel.
"""

from math import prod

from ..extents import divisors
from .sketches import AT, INLINED, SKETCH, TILED

# Independent accumulators: at least so many hide the latency of multiply-adds; more than half of the registers and they spill.
ACCUMULATORS = 8
# Bytes from a row to the next.
FAR_APART = 2048
# Bytes of the weights, the operand along the last axis, that all tiles of a chunk share: half a level-2 cache.
SHARED_BYTES = 1 << 19
ROOT = -1


def default(sketches, device):
    """A configuration, {"sketch": ...}, of ``sketches`` (`sketches.generate`) for a CPU `Device`; None where no rule fits.

    It may be built as another one (`sketches.settler`), where a block cannot be computed where it says.
    """
    traced = [sketch for sketch in sketches if "trace" in sketch]
    if device.kind != "cpu" or not traced:
        return None
    tiling = [sketch for sketch in traced if any(map(_is_tiled, _factors(sketch)))]
    if tiling:
        # The last one writes its result, and computes what follows, in the outermost loop.
        sketch = next((each for each in reversed(tiling) if " at " in each["name"]), tiling[0])
        tiles = _tiles(sketch, device)
    else:
        sketch, tiles = traced[0], {}
    config = {"_name": sketch["name"]}
    for name, parameter in sketch["parameters"].items():
        kind, value = parameter["spec"]["_type"], parameter["spec"]["_value"]
        if kind == "factor":
            config[name] = tiles.get(name, [value[0], *[1] * (value[1] - 1)])
        elif name.endswith(AT):
            config[name] = INLINED if INLINED in value and tiling else ROOT if ROOT in value else value[0]
        else:  # how far loops are unrolled: just so far that the register tile is
            inner = prod(factor[-1] * (factor[-2] if len(factor) == TILED else 1) for factor in tiles.values())
            statements = inner // next(iter(tiles.values()))[-1] if tiles else min(64, max(value))
            config[name] = next((number for number in value if number >= statements), max(value))
    return {SKETCH: config}


def _factors(sketch):
    return {name: p["spec"]["_value"] for name, p in sketch["parameters"].items() if p["spec"]["_type"] == "factor"}.items()


def _is_tiled(factor):
    return factor[1][1] == TILED


def _tiles(sketch, device):
    """Factors of the tiled axes and of the sums."""
    spatial = [(name, extent) for name, (extent, parts) in _factors(sketch) if parts == TILED]
    sums = [(name, extent) for name, (extent, parts) in _factors(sketch) if parts == 2]
    tiles = {}
    *others, (last, extent) = spatial
    lanes, room = device.vector_lanes, device.vector_registers // 2
    vector = _largest(extent, lanes)
    # Rows far apart share cache lines and defeat prefetching: of those more is read at a time, of packed ones a block.
    parameter = sketch["parameters"][last]
    block = parameter.get("divides", 0)
    widest = max(1, block // vector) if block else 4 if 4 * extent >= FAR_APART else 1
    tried = []
    for width in sorted({_largest(extent // vector, each) for each in (4, 2, 1)}, key=lambda width: (width > widest, -width)):
        accumulators, inner = width, {}
        for name, each in reversed(others):
            inner[name] = _largest(each, room // accumulators) if accumulators < ACCUMULATORS or each == 1 else 1
            accumulators *= inner[name]
        if accumulators < ACCUMULATORS:
            width *= _largest(extent // vector // width, room // accumulators)
        tried.append((min(accumulators, ACCUMULATORS), width, inner))
    _, width, inner = max(tried, key=lambda each: each[0])
    reduced = prod(each for _, each in sums)
    sharing = _largest(extent // (vector * width), max(1, SHARED_BYTES // (4 * reduced * vector * width)))
    # Weights that no level-2 cache holds are read once: a chunk has a slice of them, and goes over all results.
    streams = 4 * reduced * extent > SHARED_BYTES and extent // (vector * width) >= device.cores
    if streams:
        sharing = 1
    innermost = vector * _largest(width, min(parameter.get("innermost", extent), block or extent) // vector)
    tiles[last] = [extent // (vector * width * sharing), sharing, vector * width // innermost, innermost]
    for name, each in others:
        left = each // inner[name]
        tiles[name] = [1, left, inner[name], 1] if streams else [left, 1, inner[name], 1]
    for place, (name, each) in enumerate(sums):
        # The innermost tap of a kernel is unrolled, other sums step by step.
        tap = len(sums) > 1 and each <= 16 and place == len(sums) - 2
        tiles[name] = [1, each] if tap else [each, 1]
    return tiles


def _largest(extent, most):
    return max(d for d in divisors(extent) if d <= max(most, 1))
