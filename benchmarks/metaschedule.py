"""TVM's own tuner, MetaSchedule, on one of our workloads: tunes as a command, and as a template gives back the best it found.

usage: metaschedule.py WORKLOAD TRIALS FOLDER     a CPU's cores all work; FOLDER keeps MetaSchedule's database
"""

import sys

import tvm
from tvm.s_tir import meta_schedule as ms


def schedule(workload, config):
    """MetaSchedule's best s_tir.Schedule of a workload; ``config["folder"]`` has its database.

    Raises
    ------
    ValueError
        If it has none.
    """
    from nni_tensor_tuners.device import find_device
    from nni_tensor_tuners.measure.build import target_of

    database = ms.database.JSONDatabase(work_dir=config["folder"])
    found = database.query_schedule(_module(workload), target_of(find_device("cpu")), "main")
    if found is None:
        raise ValueError("MetaSchedule has no record of this workload")
    return found


def _module(workload):
    return tvm.IRModule({"main": workload.prim_func().with_attr("global_symbol", "main")})


def main():
    from nni_tensor_tuners.device import find_device, usable_cores
    from nni_tensor_tuners.measure.build import target_of
    from nni_tensor_tuners.workloads import get_workload

    name, trials, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    ms.tune_tir(
        _module(get_workload(name)),
        target_of(find_device("cpu")),
        folder,
        max_trials_global=trials,
        num_trials_per_iter=min(64, max(8, trials // 4)),  # 64, the default, would learn once in 100 trials
        # A fresh worker imports for ten seconds and more.
        builder=ms.builder.LocalBuilder(max_workers=usable_cores(), timeout_sec=90),
        runner=ms.runner.LocalRunner(
            timeout_sec=90,
            evaluator_config=ms.runner.EvaluatorConfig(number=3, repeat=3, min_repeat_ms=20),
        ),
        num_tuning_cores=usable_cores(),
        seed=0,
    )


if __name__ == "__main__":
    main()
