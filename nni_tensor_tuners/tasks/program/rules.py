"""Schedule rules of our own that MetaSchedule applies to blocks annotated with their names. TVM is imported inside functions only.

A block's annotation ``schedule_rule`` takes it out of the hands of TVM's rules. These are for Winograd's transforms on a CPU
(`tasks.network.winograd`): tile by tile, a vector of channels at a time, all of a tile unrolled.
"""

# Values of the annotation: the rules, and that of blocks which another block's rule schedules.
INPUT, OUTPUT, OF_ANOTHER = "tensor_tuners.winograd_input", "tensor_tuners.winograd_output", "None"
# Those that TVM's own operators ask for and that it has for no CPU.
MISSING = [f"meta_schedule.{kind}pool_{reduction}" for kind in ("", "adaptive_") for reduction in ("max", "avg")]


def register():
    """Make the rules known to TVM."""
    from tvm_ffi import register_global_func

    ours = {INPUT: _schedule_input, OUTPUT: _schedule_output, **dict.fromkeys(MISSING, _leave_to_others)}
    for name, rule in ours.items():
        register_global_func(f"s_tir.meta_schedule.cpu.{name}", rule, override=True)


def _leave_to_others(schedule, block):
    """What TVM does, with a warning, where it has no rule of a name for a device."""
    schedule.unannotate(block, "schedule_rule")
    return [schedule]


def _schedule_input(schedule, block):
    lanes = int(schedule.get(block).annotations["lanes"])
    (rows,) = schedule.get_producers(block)
    (taken,) = schedule.get_producers(rows)
    element, tile, channel = schedule.get_loops(block)
    outer, inner = schedule.split(channel, [None, lanes])
    schedule.reorder(tile, outer, element, inner)
    schedule.parallel(tile)
    schedule.unroll(element)
    schedule.vectorize(inner)
    _beneath(schedule, [rows, taken], outer)
    return [schedule]


def _schedule_output(schedule, block):
    lanes, tile = (int(schedule.get(block).annotations[name]) for name in ("lanes", "tile"))
    (rows,) = schedule.get_producers(block)
    while consumers := schedule.get_consumers(block):
        schedule.compute_inline(block)
        block = consumers[0]
    n, y, x, channel = schedule.get_loops(block)
    (down, y), (across, x) = schedule.split(y, [None, tile]), schedule.split(x, [None, tile])
    outer, inner = schedule.split(channel, [None, lanes])
    schedule.reorder(n, down, across, outer, y, x, inner)
    schedule.parallel(schedule.fuse(n, down, across))
    schedule.unroll(y)
    schedule.unroll(x)
    schedule.vectorize(inner)
    _beneath(schedule, [rows], outer)
    return [schedule]


def _beneath(schedule, blocks, loop):
    """Compute what a loop needs of some blocks inside it, unrolled but for its vectors."""
    for block in blocks:
        schedule.compute_at(block, loop, preserve_unit_loops=True)
        *unrolled, vector = schedule.get_loops(block)[-4:]
        for each in unrolled:
            schedule.unroll(each)
        schedule.vectorize(vector)
