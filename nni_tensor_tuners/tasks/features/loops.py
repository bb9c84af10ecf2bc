"""The loops of a scheduled program, and what each of them touches: the loop context of AutoTVM's paper, section A.2.1."""

import functools
from dataclasses import dataclass, field
from math import prod
from typing import NamedTuple

from .indices import Sum, index_of

# What a loop can be annotated with, the first four as `tirx.For.kind` numbers them.
ANNOTATIONS = ("serial", "parallel", "vectorized", "unrolled", "blockIdx", "threadIdx", "vthread")
# TVM unrolls loops of at most so many statements.
UNROLL = "pragma_auto_unroll_max_step"
# Of float32 in a vector of AVX-512.
LANES = 16


class Touch(NamedTuple):
    """What one run of a loop, all of its turns, touches of a buffer; the most that one of its reads or writes does.

    Attributes
    ----------
    count
        Elements, each counted once; an upper bound where an index is no sum of multiples of loop variables.
    reuse
        How often each of them is accessed.
    stride
        How many elements further on the next turn is.
    """

    count: int
    reuse: float
    stride: int


@dataclass
class Loop:
    """A loop of a program.

    Attributes
    ----------
    length
        Its turns.
    annotation
        One of `ANNOTATIONS`.
    top_down
        The product of the lengths of the loops around it.
    bottom_up
        How many statements one turn executes: the product of the lengths of the loops inside, where there is one statement.
    vectors
        The same, where all turns of a vectorized loop are one.
    statements
        How many are directly inside.
    accesses
        How many reads and writes of buffers these do.
    touched
        Buffer -> `Touch`. Buffers are numbers, by what they are for (`_numbered`).
    children
        The loops directly inside.
    """

    length: int
    annotation: str
    top_down: int
    bottom_up: int = 0
    vectors: int = 0
    statements: int = 0
    accesses: int = 0
    touched: dict = field(default_factory=dict)
    children: list = field(default_factory=list)


@functools.lru_cache(64)  # a program is described, and then proposed: whether it compiles soon is read from them, too
def loops_of(module):
    """The outermost loops of a scheduled IRModule's function "main", a list of `Loop`; each has those inside it."""
    walk = _Walk()
    walk.visit(module["main"].body, [], 0)
    numbers = _numbered(walk.accesses)
    for buffer, indices, around in walk.accesses:
        _note(numbers[buffer], [int(extent) for extent in buffer.shape], indices, around)
    return walk.roots


def longest_chain(roots):
    """Nested loops, outermost first: the chain with the most loops of more than one turn; of several the one with most turns."""

    def worth(chain):
        return sum(loop.length > 1 for loop in chain), prod(loop.length for loop in chain)

    def longest(loop):
        return [loop, *max(map(longest, loop.children), key=worth, default=[])]

    return max(map(longest, roots), key=worth, default=[])


def code_size(roots):
    """About how many instructions the code of loops has: their statements, each of them for every turn of the unrolled loops
    around it, and of vectorized ones for every turn if they access anything with gaps, else for `LANES` turns."""
    return sum(map(_code_size, roots))


def scalar_accesses(roots):
    """The most accesses that a turn of a loop does which has neither loops nor vectors inside, once unrolled.

    Those are the loops that LLVM tries to vectorize, for which it compares every access with every other.
    """
    own = [_in_a_row(loop) or 0 for loop in roots if loop.annotation in ("serial", "parallel")]
    return max([*own, *(scalar_accesses(loop.children) for loop in roots)], default=0)


def _in_a_row(loop):
    """The accesses of a turn of a loop; None where there is a loop or a vector inside."""
    inside = loop.accesses
    for child in loop.children:
        accesses = _in_a_row(child) if child.annotation == "unrolled" or child.length == 1 else None
        if accesses is None:
            return None
        inside += child.length * accesses
    return inside


def _code_size(loop):
    inside = loop.statements + code_size(loop.children)
    if loop.annotation == "unrolled":
        return inside * loop.length
    if loop.annotation == "vectorized":
        gaps = any(touch.stride > 1 for touch in loop.touched.values())
        return inside * (loop.length if gaps else -(-loop.length // LANES))
    return inside


class _Walk:
    """Walks through a program and collects its loops and accesses.

    ``around`` are the loops around a statement, (Loop, its number), and ``limit`` is how far TVM unrolls there.
    """

    def __init__(self):
        self.roots, self.accesses = [], []
        self._loops = 0
        self._values = {}  # what variables stand for, as `index_of` takes it; each has one place where it is bound

    def visit(self, statement, around, limit):
        kind = type(statement).__name__
        if kind == "For":
            self._loop(statement, around, _limit(statement.annotations, limit))
        elif kind == "SeqStmt":
            for each in statement.seq:
                self.visit(each, around, limit)
        elif kind == "SBlockRealize":
            block = statement.block
            for axis, value in zip(block.iter_vars, statement.iter_values):
                self._values[axis.var] = index_of(value, self._values)
            self.visit(block.body, around, _limit(block.annotations, limit))
        elif kind == "IfThenElse":
            for each in filter(None, (statement.then_case, statement.else_case)):
                self.visit(each, around, limit)
        elif kind in ("BufferStore", "Evaluate", "Bind"):
            self._execute(statement, around)
        else:
            self.visit(statement.body, around, limit)

    def _loop(self, statement, around, limit):
        parent = around[-1][0] if around else None
        loop = Loop(int(statement.extent), _annotation(statement), parent.top_down * parent.length if parent else 1)
        (parent.children if parent else self.roots).append(loop)
        self._loops += 1
        self._values[statement.loop_var] = Sum({self._loops: 1}, int(statement.min))
        self.visit(statement.body, [*around, (loop, self._loops)], limit)
        if loop.annotation == "serial" and loop.length * loop.vectors <= limit:
            loop.annotation = "unrolled"

    def _execute(self, statement, around):
        import tvm_ffi
        from tvm.ir.expr import TensorLoad

        turns = vectors = 1
        for loop, _ in reversed(around):
            loop.bottom_up += turns
            loop.vectors += vectors
            turns *= loop.length
            vectors *= 1 if loop.annotation == "vectorized" else loop.length
        if around:
            around[-1][0].statements += 1

        def access(buffer, indices):
            self.accesses.append((buffer, [index_of(index, self._values) for index in indices], around))
            if around:
                around[-1][0].accesses += 1

        if hasattr(statement, "buffer"):
            access(statement.buffer, statement.indices)
        tvm_ffi.structural_walk(statement.value, (TensorLoad, lambda load: access(load.source, load.indices)))


def _numbered(accesses):
    """Buffer -> its number. First are those of the statements that are executed most often, what they write and then what they read,
    as they stand there (C, A, B of figure 3b), then the others, largest first: a number means the same in other programs.
    """
    often = [prod(loop.length for loop, _ in around) for _, _, around in accesses]
    most = max(often, default=0)
    first = [buffer for (buffer, _, _), turns in zip(accesses, often) if turns == most]
    others = sorted({buffer: None for buffer, _, _ in accesses}, key=lambda buffer: -prod(map(int, buffer.shape)))
    return {buffer: number for number, buffer in enumerate(dict.fromkeys([*first, *others]))}


def _note(buffer, shape, indices, around):
    """Tell the loops around an access of what they touch by it."""
    rows = [prod(shape[place + 1 :]) for place in range(len(shape))]
    places = {}  # number of a loop -> of the indices that it moves, their places; the others stay as they are
    for place, index in enumerate(indices):
        for number in index.variables():
            places.setdefault(number, []).append(place)
    counts, count, lengths, turns = [1] * len(shape), 1, {}, 1
    for loop, number in reversed(around):
        lengths[number] = loop.length
        turns *= loop.length
        moved = places.get(number, ())
        if moved and loop.length > 1:
            for place in moved:
                counts[place] = min(indices[place].values(lengths), shape[place])
            count = prod(counts)
        stride = abs(sum(rows[place] * indices[place].slope(number) for place in moved))
        known = loop.touched.get(buffer, Touch(0, 0.0, 0))
        most = max(known.count, count)
        loop.touched[buffer] = Touch(most, max(known.reuse, turns / most), max(known.stride, stride))


def _annotation(loop):
    if loop.thread_binding is None:
        return ANNOTATIONS[int(loop.kind)]
    tag = loop.thread_binding.thread_tag
    return "vthread" if tag.startswith("vthread") else tag.partition(".")[0]


def _limit(annotations, limit):
    return int(annotations[UNROLL]) if UNROLL in annotations else limit
