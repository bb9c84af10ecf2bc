"""Schedules in MetaSchedule's databases, where its own functions find them. TVM is imported inside functions only."""

from pathlib import Path


def commit(database, source, schedule, seconds, target):
    """Add a schedule of an IRModule, with its latency, to a MetaSchedule database."""
    from tvm.s_tir import meta_schedule as ms

    about = ms.arg_info.ArgInfo.from_entry_func(source)
    workload = database.commit_workload(source)
    database.commit_tuning_record(ms.database.TuningRecord(schedule.trace, workload, [seconds], target, about))


def add(folder, schedules, target):
    """Add schedules, each an IRModule, its ``s_tir.Schedule`` and seconds, to the ``JSONDatabase`` in a folder, made if need be."""
    from tvm.s_tir import meta_schedule as ms

    Path(folder).mkdir(parents=True, exist_ok=True)
    database = ms.database.JSONDatabase(work_dir=str(folder))
    for source, schedule, seconds in schedules:
        commit(database, source, schedule, seconds, target)
