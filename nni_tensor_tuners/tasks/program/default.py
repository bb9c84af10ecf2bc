"""A sound schedule of a program on a CPU, known without measuring: where a search begins, and what is left as it is.

Of a sketch that tiles, the register tile is a vector of the last axis by as many results of the others as keep the multiply-add
units busy and fit the register file; sums run through it without a break; the result is written, and what follows computed, tile
by tile. Where the operand along the last axis has rows far apart and is large, the sum is made a few steps at a time for a chunk
of results instead. Sums of what lies side by side, as in a softmax, are made in vectors. Other sketches are taken as they are.
TVM's postprocessors vectorise and run in parallel.
"""

from math import prod

from ..extents import divisors
from .places import INLINED, ROOT
from .sketches import AT, SKETCH, SUMMED, TILED

# Where a block is computed: in the outermost loop.
OUTERMOST = 0
# Independent accumulators: at least so many hide the latency of multiply-adds; more than half of the registers and they spill.
ACCUMULATORS = 8
# Bytes from a row to the next.
FAR_APART = 2048
# Bytes of the weights, the operand along the last axis, that all tiles of a chunk share: half a level-2 cache.
SHARED_BYTES = 1 << 19
# Bytes of the results that are kept while a sum goes on by so many steps: a level-1 cache.
RESULT_BYTES, STEPS = 1 << 15, 4
# Of a kernel along an axis, that are unrolled; and the vector instructions of a register tile and all its taps.
LONGEST_TAPS, WHOLE = 16, 512
# And so many instructions of a register tile and taps are few.
FEW = 64


def first(sketches, device):
    """What a search of ``sketches`` begins with: the `default`, and what our template knows to be sound.

    One may be built as another one (`sketches.settler`), where a block cannot be computed where it says.
    """
    sound = [{SKETCH: {"_name": each["name"], **each["sound"]}} for each in sketches if "sound" in each]
    usual, stored = default(sketches, device), default(sketches, device, stored=True)
    return [*filter(None, [usual]), *([stored] if stored != usual else []), *sound]


def default(sketches, device, stored=False):
    """A configuration, {"sketch": ...}, of ``sketches`` (`sketches.generate`) for a CPU `Device`; None where no rule fits.

    What a sum reads, as padding, is computed in the sum, or if it is to be ``stored``, before; which is faster is not known.
    """
    traced = [sketch for sketch in sketches if "trace" in sketch]
    if device.kind != "cpu" or not traced:
        return None
    sketch, sums = _chosen(traced, device.vector_lanes)
    tiled = _is_tiled(sketch)
    tiles, unrolled = _tiles(sketch, device) if tiled else ({}, 0)
    tiles.update(sums)
    config = {"_name": sketch["name"]}
    for name, parameter in sketch["parameters"].items():
        kind, value = parameter["spec"]["_type"], parameter["spec"]["_value"]
        if kind == "factor":
            config[name] = tiles.get(name, [value[0], *[1] * (value[1] - 1)])
        elif name.endswith(AT):
            # What is costly is computed once, in vectors: inlined in a sum it would be again, and a sum is made one by one.
            inlined = INLINED in value and tiled and not parameter.get("costly") and not stored
            rowwise = sums and not tiled and OUTERMOST in value
            config[name] = INLINED if inlined else OUTERMOST if rowwise else ROOT if ROOT in value else value[0]
        else:  # how far loops are unrolled: just so far that the register tile is
            wanted = unrolled or min(64, max(value))
            config[name] = next((number for number in value if number >= wanted), max(value))
    return {SKETCH: config}


def _chosen(sketches, lanes):
    """A sketch; and name -> factors of its sums that are made in parts, the elements of a vector, which are added up at the end."""
    sums = {each["name"]: _sums_in_vectors(each, lanes) for each in sketches}
    sound = [each for each in sketches if _in_parts(each) == {*sums[each["name"]]}] or sketches
    most = max((sums[each["name"]] for each in sound), key=len)
    sound = [each for each in sound if sums[each["name"]] == most]
    tiling = [each for each in sound if _is_tiled(each)]
    # The last one writes its result, and computes what follows, in the outermost loop. Where sums follow it writes for nothing.
    sums_follow = any(_in_parts(each) for each in sketches if _is_tiled(each))
    writing = [each for each in tiling if " at " in each["name"] and not sums_follow]
    plain = [each for each in tiling if " at " not in each["name"]]
    return [sound[0], *tiling, *plain, *writing][-1], most


def _in_parts(sketch):
    """The names of the sums that are made in parts."""
    return {name for name, parameter in sketch["parameters"].items() if "in_vectors" in parameter}


def _sums_in_vectors(sketch, lanes):
    """Name -> factors of the sums whose parts can be the elements of a vector: what they add up lies side by side."""
    found = {}
    for name in _in_parts(sketch):
        parameter = sketch["parameters"][name]
        extent = parameter["spec"]["_value"][0]
        vector = _largest(extent, lanes)
        if parameter["in_vectors"] and 2 * vector > lanes:
            found[name] = [extent // vector, vector]
    return found


def _factors(sketch):
    return {name: p["spec"]["_value"] for name, p in sketch["parameters"].items() if p["spec"]["_type"] == "factor"}.items()


def _is_tiled(sketch):
    return any(parts == TILED for _, (_, parts) in _factors(sketch))


def _tiles(sketch, device):
    """Factors of the tiled axes and of the sums; and how many vector instructions the register tile is, a step of the sum."""
    *others, (last, extent) = [(name, extent) for name, (extent, parts) in _factors(sketch) if parts == TILED]
    in_parts = _in_parts(sketch)
    sums = [(name, extent) for name, (extent, parts) in _factors(sketch) if parts == SUMMED and name not in in_parts]
    parameter, reduced = sketch["parameters"][last], prod(each for _, each in sums)
    vector, room = _largest(extent, device.vector_lanes), device.vector_registers // 2
    large = 4 * reduced * extent > SHARED_BYTES
    # Rows far apart share cache lines and defeat prefetching: of those more is read at a time, of packed ones a block.
    block = parameter.get("divides", 0)
    far = not block and 4 * extent >= FAR_APART
    widest = max(1, block // vector) if block else 4 if far else 1
    # And of many such rows no cache keeps a slice: a few steps of the sum are made for all results of a chunk.
    by_steps = far and large
    beside, against = _operands_apart(sketch, last, others)
    if beside and against:
        width, inner = 1, _square_tile(others, beside[-1], against[-1], room)
    else:
        width, inner = _register_tile(extent // vector, others, widest, room, min if by_steps else max)
        if not by_steps:
            _fill(inner, {name: each for name, each in others if name in against}, room // width)
    sharing = _largest(extent // (vector * width), max(1, SHARED_BYTES // (4 * reduced * vector * width)))
    # Weights that no level-2 cache holds are read once: a chunk has a slice of them, and goes over all results.
    streams = large and extent // (vector * width) >= device.cores
    if streams:
        sharing = 1
    innermost = vector * _largest(width, min(parameter.get("innermost", extent), block or extent) // vector)
    tiles = {last: [extent // (vector * width * sharing), sharing, vector * width // innermost, innermost]}
    results = vector * width * prod(inner.values())
    for name, each in reversed(others):
        tile = [inner[name], 1]
        if by_steps:
            tile = [_largest(each // inner[name], RESULT_BYTES // (4 * results)), inner[name]]
            results *= tile[0]
        left = each // prod(tile)
        tiles[name] = [1, left, *tile] if streams else [left, 1, *tile]
    held = 4 * reduced * prod(prod(tiles[name]) for name in against)
    if beside and held <= SHARED_BYTES and prod(tiles[name][0] for name in beside) >= device.cores:
        # What a chunk reads of the vectors' operand meets all of the other one, which a cache holds.
        tiles.update({name: [1, left * shared, *tile] for name, (left, shared, *tile) in tiles.items() if name in against})
    longest = max(sums, key=lambda each: each[1], default=None)
    along = {name: sketch["parameters"][name].get("taps") for name, _ in sums}
    taps = [name for name, each in sums if along[name] is not None and each <= LONGEST_TAPS]
    # Of sums over taps alone the code is one row of instructions, without a loop.
    accumulators = results // vector
    whole = len(taps) == len(sums) > 0 and accumulators * reduced <= WHOLE
    # Taps are unrolled where neighbours share what they read: the innermost of a kernel, or where vectors run along that one, all if
    # they are few.
    shared = taps[-1:]
    if taps and not whole and parameter["axis"] in along[taps[-1]]:
        shared = taps if accumulators * prod(dict(sums)[name] for name in taps) <= FEW else []
    for name, each in sums:
        # Other sums are made step by step.
        steps = _largest(each, STEPS) if by_steps and (name, each) == longest else each if name in shared else 1
        tiles[name] = [each // steps, steps]
    unrolled = prod(factor[-1] * (1 if by_steps or len(factor) < TILED else factor[-2]) for factor in tiles.values())
    return tiles, WHOLE if whole else unrolled // innermost


def _register_tile(vectors, others, widest, room, choose):
    """Vectors of the last axis, up to ``widest`` of them where that is enough, and results of each other axis, a dict.

    ``choose`` says of two that are enough to keep the multiply-add units busy which is taken.
    """
    tried = []
    for width in sorted({_largest(vectors, each) for each in (4, 2, 1)}, key=lambda width: (width > widest, -width)):
        accumulators, inner = width, {}
        for name, each in reversed(others):
            inner[name] = 1
            if accumulators < ACCUMULATORS:
                fitting = [d for d in divisors(each) if d <= room // accumulators]
                inner[name] = choose([d for d in fitting if d * accumulators >= ACCUMULATORS] or [max(fitting)])
            accumulators *= inner[name]
        if accumulators < ACCUMULATORS:
            width *= _largest(vectors // width, room // accumulators)
        tried.append((min(accumulators, ACCUMULATORS), width, inner))
    return max(tried, key=lambda each: each[0])[1:]


def _fill(inner, against, room):
    """Put more results of the axes ``against`` in a register tile, which read the same of the vectors' operand, while there is room."""
    for name, each in reversed(against.items()):
        inner[name] *= _largest(each // inner[name], room // prod(inner.values()))


def _operands_apart(sketch, last, others):
    """The axes that an operand with the last axis has, and no other operand; and those that operands without the last axis have."""
    operands = {name: set(sketch["parameters"][name]["operands"]) for name in (last, *(name for name, _ in others))}
    of_vectors = operands.pop(last)
    beside = [name for name, each in operands.items() if each and each <= of_vectors]
    return beside, [name for name, each in operands.items() if each and not each & of_vectors]


def _square_tile(others, beside, against, room):
    """How many results of each axis are in a register tile of one vector of the last: of ``beside`` and ``against``, whose product
    is enough and fits, so many that the fewest operands are read for a result; of the others one."""
    extents = dict(others)
    pairs = [(a, b) for a in divisors(extents[beside]) for b in divisors(extents[against]) if a * b <= room]
    busy = max(min(a * b, ACCUMULATORS) for a, b in pairs)
    a, b = max((each for each in pairs if each[0] * each[1] >= busy), key=lambda each: each[0] * each[1] / sum(each))
    return {**dict.fromkeys(extents, 1), beside: a, against: b}


def _largest(extent, most):
    return max(d for d in divisors(extent) if d <= max(most, 1))
