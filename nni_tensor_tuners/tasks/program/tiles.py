"""What a tile of a GPU's sketch takes, said of its decisions: threads, and the shared memory that its operands are copied to.

TVM finds out by building a kernel, and refuses nine of ten. What is said here is necessary, not sufficient: memory is counted of
operands that are indexed by sums of multiples of axes, of their quotients and remainders, and of nothing else.
"""

from ..cuda import VTHREADS
from ..features.indices import Division, index_of
from .traces import axes_of


def limits_of(trace, names, named, shared_bytes):
    """Expressions in the decisions of a sketch that hold of all its configurations that TVM accepts.

    Parameters
    ----------
    trace
        Instructions and decisions (`traces.plain`).
    names
        The `Names` of the trace.
    named
        Number of an instruction -> what its decision is called in the expressions; those without a name are as in the trace.
    shared_bytes
        The most shared memory of a block.
    """
    instructions, decisions = trace
    tiles, found, low = _Tiles(dict(decisions), named), [], 1
    copies = {}  # copy of an operand -> the block that reads it, and what it reads
    held, stages, block = {}, {}, None  # of each tiled block: memory of its operands, an expression each; how often it is there
    for number, (kind, inputs, attributes, outputs) in enumerate(instructions):
        tiles.follow(number, kind, inputs, attributes, outputs)
        what = attributes[0].rpartition(".")[2] if kind == "Annotate" else kind
        if what == "CacheRead" and attributes[1] == "shared":
            block = inputs[0]
            copies[outputs[0]] = block, read_of(names.block(block, number), attributes[0])
        elif what == "ComputeAt" and inputs[0] in copies:
            reader, read = copies[inputs[0]]
            held.setdefault(reader, []).append(_bytes(read, tiles.inside(reader, inputs[1])))
        elif what == "software_pipeline_stage":
            stages[block] = max(inputs[1]) + 1
        elif what == "thread_extent_low_inclusive":
            low = inputs[1]
        elif what == "thread_extent_high_inclusive" and "threadIdx" in tiles.bound:
            found.append(f"{low} <= {tiles.bound['threadIdx']} <= {inputs[1]}")
            found.append(f"{tiles.bound.get('vthread', 1)} <= {VTHREADS}")
    for reader, operands in held.items():
        if text := " + ".join(filter(None, operands)):
            found.append(f"{text if reader not in stages else f'{stages[reader]} * ({text})'} <= {shared_bytes}")
    return found


class _Tiles:
    """Follows a trace: which loops were split from which axis, into how much, and what is bound to threads."""

    def __init__(self, decided, named):
        self._decided, self._named = decided, named
        self._factors = {}  # variable -> an expression
        self._lengths = {}  # loop -> an expression
        self._parts = {}  # loop -> those that it was split into
        self._fused = {}  # loop -> those that it was made of
        self._axes = {}  # block -> the loops of its axes
        self._order = []  # parts, outermost first
        self._threads = set()  # parts that all threads of a block run between them
        self.bound = {}  # "threadIdx", "vthread" -> how many there are, an expression

    def follow(self, number, kind, inputs, attributes, outputs):
        if kind == "SamplePerfectTile":
            for place, variable in enumerate(outputs):
                name = self._named.get(number)
                self._factors[variable] = f"{name}[{place}]" if name else str(self._decided[number][place])
        elif kind == "Split" and all(each in self._factors for each in inputs[1:]):
            self._parts[inputs[0]] = outputs
            self._lengths.update((loop, self._factors[variable]) for loop, variable in zip(outputs, inputs[1:]))
        elif kind == "Fuse" and all(each in self._lengths for each in inputs):
            self._fused[outputs[0]] = inputs
            self._lengths[outputs[0]] = _product(self._lengths[each] for each in inputs)
        elif kind == "Bind" and inputs[0] in self._lengths:
            which = attributes[0].partition(".")[0]
            self.bound[which] = self._lengths[inputs[0]]
            if which != "blockIdx":
                self._threads |= set(self._fused.get(inputs[0], inputs[:1]))
        elif kind == "GetLoops":
            self._axes.setdefault(inputs[0], outputs)
        elif kind == "Reorder":
            self._order = inputs

    def inside(self, block, loop):
        """Axis of a block, by number -> how far it runs for all threads within one turn of a loop; those that are known."""
        if loop not in self._order:
            return {}
        within = {*self._order[self._order.index(loop) + 1 :], *self._threads}
        return {
            axis: _product(self._lengths[part] for part in self._parts[whole] if part in within)
            for axis, whole in enumerate(self._axes.get(block, ()))
            if whole in self._parts
        }


def _product(factors):
    return " * ".join(each for each in factors if each != "1") or "1"


def _bytes(read, lengths):
    """The least memory that a part of an operand takes of which axes run so far, an expression; None if it is not known."""
    indices, shape, element = read
    sides = []
    for index, whole in zip(indices, shape):
        steps = [(_values(term, lengths), abs(slope)) for term, slope in index.terms.items()]
        if any(values is None for values, _ in steps):
            return None
        span = " + ".join(values if slope == 1 else f"{slope} * {values}" for values, slope in steps)
        if len(steps) == 1 and steps[0][1] == 1:
            sides.append(span)
        elif steps:  # the first and the last, and what lies between
            sides.append(f"min({whole}, {span} - {sum(slope for _, slope in steps) - 1})")
    return f"{element} * {_product(sides)}"


def _values(term, lengths):
    """How many values a term of an index takes at least, an expression; None if it is not known."""
    if not isinstance(term, Division):
        return lengths.get(term)
    (axis, *others), (factor, *_) = term.of.terms.keys(), term.of.terms.values()
    if others or factor != 1 or axis not in lengths:
        return None
    return f"min({lengths[axis]}, {term.by})" if term.remainder else f"(({lengths[axis]} - 1) // {term.by} + 1)"


def read_of(block, place):
    """What a block reads of an operand: of each axis of it a `Sum` of the block's axes, by number; its shape; bytes of an element."""
    import tvm

    values, region = axes_of(block), block.reads[place]
    indices = [index_of(each.min, values) for each in region.region]
    return indices, [int(each) for each in region.source.shape], tvm.DataType(region.source.dtype).bits // 8
