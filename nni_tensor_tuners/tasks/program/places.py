"""Where TVM computes a block that is asked for at a location, found without trying every loop.

Replaying a trace, TVM's `SampleComputeLocation` tries all loops to list those that are legal, most of a replay's time. Here loops
are tried from the one asked for upwards until one is legal, by TVM's rules of which it lists (`CollectComputeLocation`). TVM is
imported inside functions only.
"""

# Locations that are no loop: inlined, and at the root. The others are numbers of loops.
INLINED, ROOT = -2, -1


def apply(schedule, instructions, decisions, variable):
    """Apply the end of a sketch's trace, which gives blocks their places.

    Parameters
    ----------
    schedule
        An ``s_tir.Schedule`` that what comes before has been applied to.
    instructions
        (number, instruction) pairs.
    decisions
        Number -> decision.
    variable
        Function from a name of the trace to the block of the schedule, for those from before.

    Returns
    -------
    dict
        Number -> location that was taken. None, the schedule half done, where there is another instruction among them.
    """
    from tvm.s_tir.schedule import _ffi_api as ffi  # the methods check types for longer than they work

    made, taken = {}, {}

    def block(name):
        return made[name] if name in made else variable(name)

    for number, (kind, inputs, attributes, outputs) in instructions:
        if kind == "SampleComputeLocation":
            taken[number] = _place(schedule, block(inputs[0]), decisions[number])
        elif kind == "GetProducers":
            made.update(zip(outputs, ffi.ScheduleGetProducers(schedule, block(inputs[0]))))
        elif kind == "Unannotate":
            ffi.ScheduleUnannotate(schedule, block(inputs[0]), attributes[0])
        elif kind != "ComputeAt":  # it has been done with its location
            return None
    return taken


def _place(schedule, block, asked):
    """Compute a block at a location, or at the next one before it that is legal; returns which."""
    from tvm.s_tir import ScheduleError
    from tvm.s_tir.schedule import _ffi_api as ffi

    if asked == INLINED:
        try:
            ffi.ScheduleComputeInline(schedule, block)
        except ScheduleError:
            return ROOT
        return INLINED
    if asked == ROOT or not (consumers := ffi.ScheduleGetConsumers(schedule, block)):
        return ROOT
    chains = [ffi.ScheduleGetLoops(schedule, consumer) for consumer in consumers]
    for number in reversed([number for number in _listed(schedule, chains) if number <= asked]):
        try:
            ffi.ScheduleComputeAt(schedule, block, chains[0][number], True, -1)
        except ScheduleError:
            continue
        return number
    return ROOT


def _listed(schedule, chains):
    """The numbers of the loops that TVM would try, given those around each consumer: they are around all consumers, and have more
    than one turn; after one that reduces there is none that does not, and the last one does not reduce."""
    from tvm.s_tir.schedule import _ffi_api as ffi

    first, *others = [[ffi.ScheduleGet(schedule, loop) for loop in chain] for chain in chains]
    for chain in others:
        same = [a.same_as(b) for a, b in zip(first, chain)]
        first = first[: (same + [False]).index(False)]
    if not first:
        return []
    reducing = set()
    _collect_reducing(first[0], reducing)
    reduces = [loop.loop_var in reducing for loop in first]
    while reduces and reduces[-1]:
        reduces.pop()
    longer = [place for place, _ in enumerate(reduces) if int(first[place].extent) > 1]
    end = next(
        (place for place in longer if not reduces[place] and any(reduces[each] for each in longer if each < place)), None
    )
    return [place for place in longer if end is None or place < end]


def _collect_reducing(statement, reducing):
    """Add the variables that blocks inside a statement are bound to along axes that are not spatial."""
    import tvm_ffi
    from tvm import tirx

    kind = type(statement).__name__
    if kind == "SBlockRealize":
        for axis, value in zip(statement.block.iter_vars, statement.iter_values):
            if int(axis.iter_type) != tirx.IterVar.DataPar:
                tvm_ffi.structural_walk(value, (tirx.Var, reducing.add))
    elif kind == "SeqStmt":
        for each in statement.seq:
            _collect_reducing(each, reducing)
    elif kind == "IfThenElse":
        for each in filter(None, (statement.then_case, statement.else_case)):
            _collect_reducing(each, reducing)
    else:
        _collect_reducing(statement.body, reducing)
