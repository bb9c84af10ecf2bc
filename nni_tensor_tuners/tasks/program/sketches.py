"""TVM's own schedules as a search space: MetaSchedule's sketches, their decisions as parameters.

A *sketch* is a trace of schedule instructions, some of which sample a decision. MetaSchedule's rules make the sketches of a
program for a target. Here a sketch is plain data, so that processes share it and a configuration means the same in all of them:

    name            what the sketch does to which block: "tile C, write C at j_0"
    trace           as `Trace.as_json` has it: instructions, and decisions by instruction
    parameters      name -> {"instruction": its number, "spec": NNI's JSON}

Our own template of an operator (`templates`) is one more, where the program is one.

TVM and NumPy are imported inside functions only.
"""

import functools
import importlib
import json
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from math import prod
from types import ModuleType

from ...space import SearchSpace
from ..device import usable_cores
from ..target import bare_context, device_of, target_of
from . import places, rules, templates
from .traces import Names, plain, replayed

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
# And a loop without vectors, a turn of which accesses memory more often than this: it compares each access with each other.
MOST_ACCESSES = 2048
# Annotations that ask for tensor instructions begin like this.
TENSORIZES = "meta_schedule.auto_tensorize"
# Where TVM has those instructions, and what reads CUDA's, too.
TENSOR_INSTRUCTIONS = "tvm.s_tir.tensor_intrin"
CUDA_INSTRUCTIONS = "nni_tensor_tuners.tasks.program.cuda_instructions"
# Element types that GPUs have some for.
TENSOR_TYPES = ("float16", "bfloat16", "int8")
# So many schedules are remembered, and what is built for so many configurations.
REMEMBERED = 128
# Of what `generate` makes; kept sketches of another version are not taken.
VERSION = 17


def generate(module, device):
    """The sketches of an IRModule for a `Device`.

    Raises
    ------
    ValueError
        If TVM's rules make none.
    """
    import tvm

    target = target_of(device)
    useful = device.kind == "cpu" or has_tensor_types(tvm.ir.save_json(module))
    try:
        context = _context(module, target, None if useful else _without_instructions(target))
        try:
            schedules = context.generate_design_space()
        except IndexError:
            schedules = _context(module, target, _reductions_first(context.space_generator)).generate_design_space()
        if device.kind == "cpu" and any(TENSORIZES in str(each.trace) for each in schedules):
            schedules = _context(module, target, _without_instructions(target)).generate_design_space()
    except Exception as error:
        raise ValueError(f"TVM makes no sketch of this program: {_last_line(error)}") from None
    return of_schedules(module, schedules, device)


def has_tensor_types(text):
    """Whether a GPU's tensor instructions may compute something of a module, given as JSON: it has elements of their types."""
    return any(dtype in text for dtype in TENSOR_TYPES)


def _without_instructions(target):
    """TVM's space generator without tensor instructions, for a target.

    Those of TVM 0.27 for AVX512-VNNI do not compile: LLVM 22 has another type for the instruction (`matmul.dot` has its own).
    Those for GPUs take a while to read, and are of no use to most programs.
    """
    from tvm.s_tir import meta_schedule as ms

    made = [each.create(target.kind.name) for each in (ms.ScheduleRule, ms.Postproc, ms.Mutator)]
    return ms.space_generator.PostOrderApply(None, *made)


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
    return ms.space_generator.PostOrderApply(None, ordered, generator.postprocs, generator.mutator_probs)


def _context(module, target, generator=None):
    """What MetaSchedule tunes by; without a generator, TVM's own for the target, which may use tensor instructions."""
    from tvm.s_tir import meta_schedule as ms

    rules.register()
    read_tensor_instructions(cuda=target.kind.name == "cuda" and generator is None)
    return ms.TuneContext(
        mod=module,
        target=target,
        space_generator=generator or "post-order-apply",
        search_strategy="replay-trace",
        task_name="main",
        rand_state=1,
        num_threads=1,
    )


def read_tensor_instructions(cuda=False):
    """Import those that a target's rules may use, before TVM imports all: reading CUDA's takes ten seconds, in our way two."""
    if cuda:
        importlib.import_module(CUDA_INSTRUCTIONS)
        return
    name = f"{TENSOR_INSTRUCTIONS}.cuda"
    if name in sys.modules:
        return
    sys.modules[name] = ModuleType(name)
    try:
        importlib.import_module(TENSOR_INSTRUCTIONS)
    finally:
        del sys.modules[name]  # whoever wants them can still import them


def of_schedules(module, schedules, device, template=True):
    """The sketches of an IRModule that MetaSchedule's space generator has made for a `Device`; ValueError if there is none.

    After them comes our template, if it is wanted and there is one.
    """
    with ThreadPoolExecutor(usable_cores()) as pool:  # TVM replays without Python's lock
        sketches = list(pool.map(lambda schedule: _sketch(module, schedule, device), schedules))
    names = {}
    for sketch in sketches:
        names[sketch["name"]] = same = names.get(sketch["name"], 0) + 1
        if same > 1:
            sketch["name"] = f"{sketch['name']} ({same})"
    if not sketches:
        raise ValueError("TVM makes no sketch of this program")
    _share_locations(sketches)
    return [*sketches, *(templates.of_program(module, device, f"{SKETCH}.") if template else ())]


def _sketch(module, schedule, device):
    trace = plain(schedule.trace.as_json())
    seen = Names(module, trace)
    parameters = _parameters(module, trace, seen)
    made = {"name": _name(trace, seen), "trace": trace, "parameters": parameters}
    if device.kind == "cuda" and TENSORIZES not in str(trace):
        from . import tiles

        named = {each["instruction"]: f"{SKETCH}.{name}" for name, each in parameters.items()}
        made["limits"] = tiles.limits_of(trace, seen, named, device.shared_bytes)
    return made


def search_space(sketches):
    """NNI's search-space JSON: a nested choice of the sketches."""
    branches = [
        {"_name": sketch["name"], **{name: parameter["spec"] for name, parameter in sketch["parameters"].items()}}
        for sketch in sketches
    ]
    return {SKETCH: {"_type": "choice", "_value": branches}}


def constraints(sketches):
    """Expressions for `SearchSpace`: the bounds on innermost factors, what a GPU's tile may take, and a template's own.

    Where an operand is packed in blocks along an axis, the innermost factor divides the block: a vector does not reach over two.
    """
    bounds, limited = {}, {}  # expression -> None; expression -> names of the sketches that it is of
    for sketch in sketches:
        for name, parameter in sketch["parameters"].items():
            if "innermost" in parameter:
                bounds[f"{SKETCH}.{name}[-1] <= {parameter['innermost']}"] = None
            if "divides" in parameter:
                bounds[f"{parameter['divides']} % {SKETCH}.{name}[-1] == 0"] = None
        for text in sketch.get("limits", ()):
            limited.setdefault(text, []).append(sketch["name"])
    made = sum("trace" in sketch for sketch in sketches)
    for text, which in limited.items():  # sketches without limits may have parameters of the same names
        bounds[text if len(which) == made else f"{SKETCH}._name not in {json.dumps(which)} or {text}"] = None
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


def builder(module, sketches, target):
    """Function from a configuration to its scheduled IRModule and the configuration that it is of, as by `schedule`.

    It remembers its last answers: a configuration that is proposed has been described just before.
    """

    def build(config):
        made, taken = schedule(module, sketches, config, target, quick=True)
        return made.mod, taken

    return _remembering(build)


def settler(sketches, target, build):
    """`Task.settler` of a program: the first configuration asked about that has the same kernel stands for all that have it.

    On a CPU none is built whose code compiles for too long (`compiles_soon`), on a GPU none that is beyond its static limits once
    loops are unrolled, which MetaSchedule's own check does not do. ``build`` is a `builder`.
    """
    import tvm_ffi

    from ..cuda_limits import check_limits

    device = device_of(target)
    space = SearchSpace.from_json(search_space(sketches), constraints(sketches))
    first = {}  # hash of the scheduled module -> configuration
    standing = set()  # those, as text: each of them is built itself

    def settle(config):
        if json.dumps(config) in standing:
            return config
        try:
            made, taken = build(config)
            if device.kind == "cuda":
                check_limits(made, device, target)
        except Exception:  # TVM's ScheduleError is no ValueError
            return None
        if not space.contains(taken):
            return None  # computed at a place that `_locations` did not come by
        if device.kind != "cuda" and not compiles_soon(made):
            return None
        built = first.setdefault(tvm_ffi.structural_hash(made), taken)
        standing.add(json.dumps(built))
        return built

    return _remembering(settle)


def _remembering(function):
    """A function of a configuration that remembers its last `REMEMBERED` answers."""
    answer = functools.lru_cache(REMEMBERED)(lambda text: function(json.loads(text)))
    return lambda config: answer(json.dumps(config))


def compiles_soon(module):
    """Whether a CPU's code of a scheduled module is no longer than MOST_INSTRUCTIONS, its longest scalar loop than MOST_ACCESSES."""
    from ..features import code_size, loops_of, scalar_accesses

    roots = loops_of(module)
    return code_size(roots) <= MOST_INSTRUCTIONS and scalar_accesses(roots) <= MOST_ACCESSES


def difference(config, taken):
    """In words, what two configurations of one sketch do not have alike."""
    before, after = config[SKETCH], taken[SKETCH]
    return ", ".join(f"{name} {after[name]} instead of {before[name]}" for name in before if before[name] != after[name])


def decision_of(instruction, value):
    """What TVM's trace has as the decision of an instruction, given a parameter's value."""
    if instruction[0] == "SampleCategorical":
        return instruction[2][0].index(value)
    return value


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


def _sampled(module, instructions, decided):
    """The schedule of a trace, and the locations that TVM has taken, by the number of the instruction."""
    result = replayed(module, instructions, sorted(decided.items()))
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
    result = replayed(module, instructions[:first], sorted(decided.items()))
    made_by = {name: (number, place) for number, each in enumerate(instructions) for place, name in enumerate(each[3])}

    def variable(name):
        number, place = made_by[name]
        return result.trace.insts[number].outputs[place]

    at = places.apply(result, list(enumerate(instructions))[first:], decided, variable)
    return (result, at) if at is not None else _sampled(module, instructions, decided)


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
            if parts == TILED:
                more |= {"axis": names.axis(inputs[0]), "operands": names.operands(inputs[0], number)}
                if block := names.block_of(inputs[0], number):
                    more["divides"] = block
            if (part := _reduced_apart(instructions, outputs)) is not None:
                more["in_vectors"] = part == 1 and names.is_contiguous(inputs[0], number)
            elif parts == SUMMED and (axes := names.tapped(inputs[0], number)) is not None:
                more["taps"] = axes
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
        schedule = replayed(module, instructions[:number], before, draw + 1)
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


def _last_line(error):
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines or [type(error).__name__])[-1]
