"""What lies around the block that a template schedules, where that is a part of a larger program."""


def results_of(sch, block, scope):
    """The block that carries tiles of another one's results to the program's output, to be computed at one of its loops.

    That is the stage after it, into which those between are inlined; where there is none, a copy. Its results are then kept in
    ``scope``.

    Raises
    ------
    tvm.s_tir.ScheduleError
        If a stage between cannot be inlined.
    """
    while following := sch.get_consumers(block):
        between = [each for each in following if sch.get_consumers(each)]
        if not between:
            sch.set_scope(block, 0, scope)
            return following[0]
        sch.compute_inline(between[0])
    return sch.cache_write(block, 0, scope)
