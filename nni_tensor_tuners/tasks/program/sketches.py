"""TVM's own schedules as a search space: MetaSchedule's sketches, their decisions as parameters.

A *sketch* is a trace of schedule instructions, some of which sample a decision. MetaSchedule's rules make the sketches of a
program for a target. Here a sketch is plain data, so that processes share it and a configuration means the same in all of them:

    name            what the sketch does to which block: "tile C, write C at j_0"
    trace           as `Trace.as_json` has it: instructions, and decisions by instruction
    parameters      name -> {"instruction": its number, "spec": NNI's JSON}

Our own template of an operator (`templates`) is one more, where the program is one.

TVM and NumPy are imported inside functions only.
"""

import importlib
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from math import prod
from types import ModuleType

from ...space import SearchSpace
from ..device import usable_cores
from ..target import bare_context, device_of, target_of
from ..vector_math import may_call
from . import places, rules, templates

# What the nested choice of sketches is called in a search space.
SKETCH = "sketch"
# Which locations of a block are legal depends on the decisions before: they are listed for so many draws of these.
DRAWS = 4
# Asked for a location that is not legal, TVM takes the next legal one before it.
BEYOND = 1000
# What the names of such parameters end in.
AT = "_at"
# Parts of the factors that a CPU's and a GPU's tiled axes have: SSRSRS, SSSRRSRS.
TILED = 4
# And that a CPU's sums have.
SUMMED = 2
# LLVM compiles a CPU's code of more instructions than this for seconds, soon for a minute, and it is not the fastest.
MOST_INSTRUCTIONS = 4096
# Annotations that ask for tensor instructions begin like this.
TENSORIZES = "meta_schedule.auto_tensorize"
# Of what `generate` makes; kept sketches of another version are not taken.
VERSION = 8


def generate(module, device):
    """The sketches of an IRModule for a `Device`.

    Raises
    ------
    ValueError
        If TVM's rules make none.
    """
    target = target_of(device)
    try:
        context = _context(module, target)
        try:
            schedules = context.generate_design_space()
        except IndexError:
            schedules = _context(module, target, _reductions_first(context.space_generator)).generate_design_space()
    except Exception as error:
        raise ValueError(f"TVM makes no sketch of this program: {_last_line(error)}") from None
    return of_schedules(module, schedules, device)


def _reductions_first(generator):
    """A space generator like another, whose rules tile after they have given reductions to threads that work together.

    TVM 0.27's order fails where several blocks can be tiled and others cannot, as in attention: the rule for reductions then
    meets loops that tiling has left, which do not match those that it looks for.
    """
    from tvm.s_tir import meta_schedule as ms

    rules = {}
    for rule in generator.sch_rules:
        rules.setdefault(type(rule).__name__.replace("TensorCore", ""), []).append(rule.clone())
    tiling, inlining = rules.pop("MultiLevelTiling", []), rules.get("AutoInline", [])
    ordered = []
    for name, same in rules.items():
        ordered += [*same, *tiling, *inlining] if name == "CrossThreadReduction" else same
    return ms.space_generator.PostOrderApply(sch_rules=ordered)


def _context(module, target, generator="post-order-apply"):
    from tvm.s_tir import meta_schedule as ms

    rules.register()
    read_tensor_instructions(target)
    return ms.TuneContext(
        mod=module,
        target=target,
        space_generator=generator,
        search_strategy="replay-trace",
        task_name="main",
        rand_state=1,
        num_threads=1,
    )


def read_tensor_instructions(target):
    """Import those that a target's rules may use, before TVM imports all: reading CUDA's takes ten seconds."""
    name = "tvm.s_tir.tensor_intrin.cuda"
    if target.kind.name == "cuda" or name in sys.modules:
        importlib.import_module(name)
        return
    sys.modules[name] = ModuleType(name)
    try:
        importlib.import_module("tvm.s_tir.tensor_intrin")
    finally:
        del sys.modules[name]  # whoever wants them can still import them


def of_schedules(module, schedules, device=None):
    """The sketches of an IRModule that MetaSchedule's space generator has made; ValueError if there is none.

    After them comes our template for a `Device`, if one is given, and there is a template.
    """
    with ThreadPoolExecutor(usable_cores()) as pool:  # TVM replays without Python's lock
        sketches = list(pool.map(lambda schedule: _sketch(module, schedule), schedules))
    names = {}
    for sketch in sketches:
        names[sketch["name"]] = same = names.get(sketch["name"], 0) + 1
        if same > 1:
            sketch["name"] = f"{sketch['name']} ({same})"
    if not sketches:
        raise ValueError("TVM makes no sketch of this program")
    _share_locations(sketches)
    return [*sketches, *(templates.of_program(module, device, f"{SKETCH}.") if device else ())]


def _sketch(module, schedule):
    trace = plain(schedule.trace.as_json())
    seen = _Names(module, trace)
    return {"name": _name(trace, seen), "trace": trace, "parameters": _parameters(module, trace, seen)}


def search_space(sketches):
    """NNI's search-space JSON: a nested choice of the sketches."""
    branches = [
        {"_name": sketch["name"], **{name: parameter["spec"] for name, parameter in sketch["parameters"].items()}}
        for sketch in sketches
    ]
    return {SKETCH: {"_type": "choice", "_value": branches}}


def constraints(sketches):
    """Expressions for `SearchSpace`: the bounds on innermost factors, and a template's own.

    Where an operand is packed in blocks along an axis, the innermost factor divides the block: a vector does not reach over two.
    """
    bounds = {}
    for sketch in sketches:
        for name, parameter in sketch["parameters"].items():
            if "innermost" in parameter:
                bounds[f"{SKETCH}.{name}[-1] <= {parameter['innermost']}"] = None
            if "divides" in parameter:
                bounds[f"{parameter['divides']} % {SKETCH}.{name}[-1] == 0"] = None
    return [*bounds, *(text for sketch in sketches for text in sketch.get("constraints", ()))]


def schedule(module, sketches, config, target, quick=False):
    """The ``s_tir.Schedule`` of a configuration, MetaSchedule's postprocessors applied; and the configuration it is of.

    That is another one where a block cannot be computed where the first one has it: TVM then takes another place. With
    ``quick`` its module is the same, found in about half the time (`places`), but its trace is no sketch's.

    Raises
    ------
    ValueError
        If there is no such sketch, or if a postprocessor refuses.
    """
    chosen = config[SKETCH]
    sketch = next((each for each in sketches if each["name"] == chosen["_name"]), None)
    if sketch is None:
        raise ValueError(f"{SKETCH}: there is none that is called {chosen['_name']!r} of this program here")
    if "task" in sketch:
        return templates.schedule(module, sketch, chosen, device_of(target)), config
    instructions, decisions = sketch["trace"]
    decided = dict(decisions)
    for name, parameter in sketch["parameters"].items():
        decided[parameter["instruction"]] = decision_of(instructions[parameter["instruction"]], chosen[name])
    result, at = (_placed if quick else _sampled)(module, instructions, decided)
    taken = {name: at.get(parameter["instruction"], chosen[name]) for name, parameter in sketch["parameters"].items()}
    result.enter_postproc()
    for postprocessor in _postprocessors(module, target, any(TENSORIZES in str(each) for each in instructions)):
        if not postprocessor.apply(result):
            raise ValueError(f"{type(postprocessor).__name__} refuses this configuration")
    return result, {**config, SKETCH: {**chosen, **taken}}


def settler(module, sketches, target):
    """`Task.settler` of a program: the first configuration asked about that has the same kernel stands for all that have it.

    On a CPU none is built whose code is too long (MOST_INSTRUCTIONS).
    """
    import tvm_ffi

    from ..features import code_size

    space = SearchSpace.from_json(search_space(sketches), constraints(sketches))
    first = {}  # hash of the scheduled module -> configuration

    def settle(config):
        try:
            made, taken = schedule(module, sketches, config, target, quick=True)
        except Exception:  # TVM's ScheduleError is no ValueError
            return None
        if not space.contains(taken):
            return None  # computed at a place that `_locations` did not come by
        if target.kind.name != "cuda" and code_size(made.mod) > MOST_INSTRUCTIONS:
            return None
        return first.setdefault(tvm_ffi.structural_hash(made.mod), taken)

    return settle


def difference(config, taken):
    """In words, what two configurations of one sketch do not have alike."""
    before, after = config[SKETCH], taken[SKETCH]
    return ", ".join(f"{name} {after[name]} instead of {before[name]}" for name in before if before[name] != after[name])


def decision_of(instruction, value):
    """What TVM's trace has as the decision of an instruction, given a parameter's value."""
    if instruction[0] == "SampleCategorical":
        return instruction[2][0].index(value)
    return value


def plain(data):
    """TVM's containers as lists, strings and numbers, as JSON has them."""
    if isinstance(data, (bool, int, float)) or data is None:
        return data
    if isinstance(data, str):
        return str(data)
    if hasattr(data, "value"):  # IntImm and the like
        return plain(data.value)
    return [plain(each) for each in data]


def _postprocessors(module, target, tensorized):
    """MetaSchedule's own for a target, ready to apply."""
    from tvm.s_tir import meta_schedule as ms

    if tensorized:
        return _context(module, target).space_generator.postprocs
    context = bare_context(module, target)
    found = ms.postproc.Postproc.create("cuda" if target.kind.name == "cuda" else "llvm")
    for each in found:
        each._initialize_with_tune_context(context)
    return found


def _replayed(module, instructions, decisions, seed=1):
    """The schedule of an IRModule after so many of a trace's instructions; what ``decisions`` do not have is drawn by the seed."""
    from tvm import s_tir

    schedule = s_tir.Schedule(module, seed=seed, debug_mask="none", error_render_level="fast")
    known = [list(each) for each in decisions if each[0] < len(instructions)]
    s_tir.schedule.Trace.apply_json_to_schedule([instructions, known], schedule)
    return schedule


def _sampled(module, instructions, decided):
    """The schedule of a trace, and the locations that TVM has taken, by the number of the instruction."""
    result = _replayed(module, instructions, sorted(decided.items()))
    return result, {
        number: int(result.trace.get_decision(result.trace.insts[number]))
        for number, (kind, *_) in enumerate(instructions)
        if kind == "SampleComputeLocation"
    }


def _placed(module, instructions, decided):
    """As `_sampled`, without TVM's trying of every location."""
    first = next((number for number, (kind, *_) in enumerate(instructions) if kind == "SampleComputeLocation"), None)
    if first is None:
        return _sampled(module, instructions, decided)
    result = _replayed(module, instructions[:first], sorted(decided.items()))
    made_by = {name: (number, place) for number, each in enumerate(instructions) for place, name in enumerate(each[3])}

    def variable(name):
        number, place = made_by[name]
        return result.trace.insts[number].outputs[place]

    at = places.apply(result, list(enumerate(instructions))[first:], decided, variable)
    return (result, at) if at is not None else _sampled(module, instructions, decided)


class _Names:
    """What blocks and loops are called at the point of a trace where an instruction takes them."""

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

    def is_tap(self, loop, before):
        """Whether the turns of a loop that was taken from a block read what those for neighbours of its result read, too: as the
        taps of a kernel do, x + r being the same for several x and r.
        """
        from ..features.indices import index_of

        block, axis = self._axis(loop, before)
        if block is None:
            return False
        values, number = _numbered(block, axis)
        lengths = {place: int(each.dom.extent) for place, each in enumerate(block.iter_vars)}
        for start in _starts(block):
            index = index_of(start, values)
            variables = index.variables()
            if number in variables and index.values(lengths) < prod(lengths[each] for each in variables):
                return True
        return False

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
        schedule = self._schedule(before)
        return may_call(schedule.get(self.variable(schedule, variable)).body)

    def _axis(self, loop, before):
        """A block, and the variable of its axis that a loop was taken for; (None, None) if the loop was made otherwise."""
        kind, inputs, _, loops = self._trace[0][self._from[loop][0]]
        if kind == "GetLoops":
            schedule = self._schedule(before)
            block = schedule.get(self.variable(schedule, inputs[0]))
            if len(block.iter_vars) == len(loops):
                return block, block.iter_vars[self._from[loop][1]].var
        return None, None

    def _schedule(self, before):
        if self._last[0] != before:
            instructions, decisions = self._trace
            self._last = before, _replayed(self._module, instructions[:before], decisions)
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


def _parameters(module, trace, names):
    """The decisions of a trace that have more than one value."""
    instructions, decisions = trace
    decided, parameters = dict(decisions), {}
    for number, (kind, inputs, attributes, outputs) in enumerate(instructions):
        more = {}
        if kind == "SamplePerfectTile":
            extent, (parts, innermost) = prod(decided[number]), attributes
            if extent == 1 or parts == 1:
                continue
            spec = {"_type": "factor", "_value": [extent, parts]}
            if 0 < innermost < extent:
                more = {"innermost": innermost}
            if parts == TILED and (block := names.block_of(inputs[0], number)):
                more["divides"] = block
            if (part := _reduced_apart(instructions, outputs)) is not None:
                more["in_vectors"] = part == 1 and names.is_contiguous(inputs[0], number)
            elif parts == SUMMED and names.is_tap(inputs[0], number):
                more["tap"] = True
            name = names.path(inputs[0], number)
        elif kind == "SampleCategorical":
            values = sorted(set(attributes[0]))
            name = _purpose(instructions, outputs[0], number, names)
            if len(values) == 1 or name is None:
                continue
            spec = {"_type": "discrete", "_value": values}
        elif kind == "SampleComputeLocation":
            values = _locations(module, trace, number, names)
            if len(values) == 1:
                continue
            spec, name = {"_type": "discrete", "_value": values}, f"{names.of(inputs[0], number)}{AT}"
            if names.is_costly(inputs[0], number):
                more["costly"] = True
        else:
            continue
        name = re.sub(r"\W", "_", name)
        taken = sum(re.fullmatch(rf"{name}(_\d+_)?", other) is not None for other in parameters)
        parameters[name if not taken else f"{name}_{taken + 1}_"] = {"instruction": number, "spec": spec, **more}
    return parameters


def _reduced_apart(instructions, factors):
    """The factor, by its place, each of whose turns gets a partial result of its own (rfactor); None if none does."""
    loops = next((made for kind, inputs, _, made in instructions if kind == "Split" and factors[0] in inputs), [])
    return next((loops.index(inputs[0]) for kind, inputs, *_ in instructions if kind == "RFactor" and inputs[0] in loops), None)


def _purpose(instructions, variable, number, names):
    """What a sampled number is for, by the instruction that takes it; None if none does."""
    for later, (kind, inputs, attributes, _) in enumerate(instructions[number:], number):
        if variable in inputs:
            if kind == "Annotate":
                key = attributes[0].rpartition(".")[2]
                if key == "unroll_explicit":
                    return "unroll"
                return f"{names.of(inputs[0], later)}_{key}"
            if kind == "Split":
                return f"{names.path(inputs[0], later)}_threads"
            return kind
    return None


def _share_locations(sketches):
    """Give the locations of a block in all sketches the same values, so that they are one parameter of the space.

    What lies between those that were found is among them: other decisions than those drawn may make it legal.
    """
    all_of = {}
    for sketch in sketches:
        for name, parameter in sketch["parameters"].items():
            if name.endswith(AT):
                all_of.setdefault(name, set()).update(parameter["spec"]["_value"])
    for sketch in sketches:
        for name, parameter in sketch["parameters"].items():
            if name.endswith(AT):
                places = all_of[name]
                parameter["spec"]["_value"] = sorted(places | set(range(0, max(places) + 1)))


def _locations(module, trace, number, names):
    """Every location that a block can have under some draw of the decisions before it."""
    instructions, decisions = trace
    found = set()
    for draw in range(DRAWS):
        before = decisions if draw == 0 else []  # else drawn by the schedule's own seed
        schedule = _replayed(module, instructions[:number], before, draw + 1)
        block = names.variable(schedule, instructions[number][1][0])
        taken = BEYOND
        while (asked := taken - 1) >= places.INLINED:
            schedule.sample_compute_location(block, asked)  # says where, and moves nothing
            taken = int(schedule.trace.get_decision(schedule.trace.insts[-1]))
            if taken > asked:  # none is left below: one of the others was taken
                break
            found.add(taken)
    return sorted(found)


def _name(trace, names):
    """What a sketch does, in words that tell it from the others."""
    words = []
    for number, (kind, inputs, attributes, _) in enumerate(trace[0]):
        if kind == "Annotate" and attributes[0] == "meta_schedule.tiling_structure":
            words.append(f"tile {names.of(inputs[0], number)}")
        elif kind == "CacheWrite":
            words.append(f"write {names.of(inputs[0], number)}")
        elif kind == "ReverseComputeAt":
            words.append(f"at {names.of(inputs[1], number)}")
        elif kind == "RFactor":
            words.append(f"rfactor {names.path(inputs[0], number)}")
        elif kind == "Split" and any(names.made_by(each) == "SampleCategorical" for each in inputs[1:]):
            words.append(f"threads share {names.path(inputs[0], number)}")
        elif kind == "Annotate" and attributes[0] == TENSORIZES and "sync" in str(inputs[1]):
            words.append(str(inputs[1]).strip('"'))
        elif kind == "Annotate" and attributes[0] == "software_pipeline_stage":
            words.append(f"{max(inputs[1]) + 1} stages")
    return ", ".join(words).replace(", at ", " at ") or "plain"


def _numbered(block, axis):
    """The axes of a block as variables of `index_of`, by their places; and the place of one of them."""
    from ..features.indices import Sum

    values = {each.var: Sum({place: 1}) for place, each in enumerate(block.iter_vars)}
    (number,) = values[axis].variables()
    return values, number


def _starts(block):
    """Where what a block reads begins, along each axis of each operand; nothing of None."""
    return [each.min for region in block.reads for each in region.region] if block is not None else []


def _last_line(error):
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines or [type(error).__name__])[-1]
