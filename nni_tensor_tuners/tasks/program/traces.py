"""Traces of schedule instructions as plain data: replayed, and what their blocks and loops are called and read.

A trace is a list as `Trace.as_json` has it: instructions, and decisions by instruction. TVM and NumPy are imported inside functions
only.
"""

from math import prod

from ..vector_math import may_call


def plain(data):
    """TVM's containers as lists, strings and numbers, as JSON has them."""
    if isinstance(data, (bool, int, float)) or data is None:
        return data
    if isinstance(data, str):
        return str(data)
    if hasattr(data, "value"):  # IntImm and the like
        return plain(data.value)
    return [plain(each) for each in data]


def replayed(module, instructions, decisions, seed=1):
    """The schedule of an IRModule after so many of a trace's instructions; what ``decisions`` do not have is drawn by the seed."""
    from tvm import s_tir

    schedule = s_tir.Schedule(module, seed=seed, debug_mask="none", error_render_level="fast")
    known = [list(each) for each in decisions if each[0] < len(instructions)]
    s_tir.schedule.Trace.apply_json_to_schedule([instructions, known], schedule)
    return schedule


class Names:
    """What blocks and loops are called, and what they read, at the point of a trace where an instruction takes them."""

    def __init__(self, module, trace):
        self._module, self._trace = module, trace
        self._last = None, None  # a number of instructions, and the schedule after them: names are asked for in their order
        self._from = {}  # variable -> (number of the instruction that makes it, position among its outputs)
        for number, (_, _, _, outputs) in enumerate(trace[0]):
            self._from.update((variable, (number, position)) for position, variable in enumerate(outputs))

    def of(self, variable, before):
        """The name of the block or loop that a variable stands for, before instruction number ``before``."""
        schedule = self._schedule(before)
        found = schedule.get(self.variable(schedule, variable))
        return found.loop_var.name if hasattr(found, "loop_var") else found.name_hint

    def block_of(self, loop, before):
        """In what blocks an operand is packed along the axis of a loop that was taken from a block: b, if it is indexed by the
        axis // b and the axis % b; None if it is not.
        """
        from tvm import tirx

        block, axis = self._axis(loop, before)
        found = set()
        for start in _starts(block):
            if isinstance(start, tirx.FloorDiv) and start.a.same_as(axis) and hasattr(start.b, "value"):
                found.add(int(start.b.value))
        return found.pop() if len(found) == 1 else None

    def tapped(self, loop, before):
        """Along which of a block's axes, by number, neighbours read what turns of a loop that was taken from the block read, too: as
        the taps of a kernel do, x + r being the same for several x and r. Of r in x // 4 + r it is none, but it is a tap; None of
        what is not.
        """
        from ..features.indices import index_of

        block, axis = self._axis(loop, before)
        if block is None:
            return None
        values, number = _numbered(block, axis)
        lengths, found = {place: int(each.dom.extent) for place, each in enumerate(block.iter_vars)}, None
        for start in _starts(block):
            index = index_of(start, values)
            variables = index.variables()
            if number in variables and index.values(lengths) < prod(lengths[each] for each in variables):
                found = (found or set()) | {each for each in variables - {number} if index.slope(each)}
        return None if found is None else sorted(found)

    def operands(self, loop, before):
        """The numbers of the operands of a block that are indexed by the axis that a loop was taken for."""
        from ..features.indices import index_of

        block, axis = self._axis(loop, before)
        if block is None:
            return []
        values, number = _numbered(block, axis)
        return [
            place
            for place, region in enumerate(block.reads)
            if any(number in index_of(each.min, values).variables() for each in region.region)
        ]

    def is_contiguous(self, loop, before):
        """Whether a loop's turns read element after element: it, or the last of those fused to it, was taken for an axis of a block
        that is the last of each operand that has it.
        """
        from ..features.indices import index_of

        kind, inputs, *_ = self._trace[0][self._from[loop][0]]
        block, axis = self._axis(inputs[-1] if kind == "Fuse" else loop, before)
        if block is None:
            return False
        values, number = _numbered(block, axis)
        for region in block.reads:
            *others, last = [index_of(each.min, values).slope(number) for each in region.region]
            if any(others) or last not in (0, 1):
                return False
        return True

    def is_costly(self, variable, before):
        """Whether each result of a block takes many instructions, as exp does."""
        return may_call(self.block(variable, before).body)

    def block(self, variable, before):
        """The block that a variable stands for, before instruction number ``before``."""
        schedule = self._schedule(before)
        return schedule.get(self.variable(schedule, variable))

    def axis(self, loop):
        """The number of the axis that a loop was taken for from a block."""
        return self._from[loop][1]

    def _axis(self, loop, before):
        """A block, and the variable of its axis that a loop was taken for; (None, None) if the loop was made otherwise."""
        kind, inputs, _, loops = self._trace[0][self._from[loop][0]]
        if kind == "GetLoops":
            block = self.block(inputs[0], before)
            if len(block.iter_vars) == len(loops):
                return block, block.iter_vars[self._from[loop][1]].var
        return None, None

    def _schedule(self, before):
        if self._last[0] != before:
            instructions, decisions = self._trace
            self._last = before, replayed(self._module, instructions[:before], decisions)
        return self._last[1]

    def variable(self, schedule, variable):
        """What a schedule that these instructions, or the first of them, have been applied to has for a variable."""
        number, position = self._from[variable]
        return schedule.trace.insts[number].outputs[position]

    def made_by(self, variable):
        """The kind of the instruction that makes a variable; None of a constant."""
        return self._trace[0][self._from[variable][0]][0] if variable in self._from else None

    def path(self, loop, before):
        """The names of the block that a loop, or the loop it was split from, was taken from, and of the loop: "C_k_1"."""
        variable = loop
        while (made := self._trace[0][self._from[variable][0]])[0] not in ("GetLoops", "GetSBlock"):
            if not made[1]:
                return self.of(loop, before)
            variable = made[1][0]
        block = made[1][0] if made[0] == "GetLoops" else variable
        return f"{self.of(block, before)}_{self.of(loop, before)}"


def axes_of(block):
    """The axes of a block as variables of `index_of`, by their places."""
    from ..features.indices import Sum

    return {each.var: Sum({place: 1}) for place, each in enumerate(block.iter_vars)}


def _numbered(block, axis):
    """`axes_of` a block, and the place of one of them."""
    values = axes_of(block)
    (number,) = values[axis].variables()
    return values, number


def _starts(block):
    """Where what a block reads begins, along each axis of each operand; nothing of None."""
    return [each.min for region in block.reads for each in region.region] if block is not None else []
