"""TVM's own tuner, MetaSchedule, on one of our workloads: tunes as a command, and as a task gives back the best it found.

usage: metaschedule.py WORKLOAD TRIALS FOLDER     a CPU's cores all work; FOLDER keeps MetaSchedule's database
"""

import sys
from dataclasses import dataclass

from nni_tensor_tuners.tasks import Task, get_task
from nni_tensor_tuners.tasks.device import find_device, usable_cores


@dataclass(frozen=True)
class Found(Task):
    """A named workload, scheduled as MetaSchedule has found best; a configuration's ``folder`` has its database."""

    name: str

    operator = "metaschedule:Found"

    @property
    def task(self):
        return get_task(self.name)

    @property
    def flop(self):
        return self.task.flop

    @property
    def buffers(self):
        return self.task.buffers

    @property
    def shapes(self):
        return self.task.shapes

    def inputs(self, seed=0):
        return self.task.inputs(seed)

    def reference(self, *inputs, out=None):
        return self.task.reference(*inputs, out=out)

    def search_space(self, device, extended=False):
        return {"folder": {"_type": "choice", "_value": []}}

    def constraints(self, device, extended=False):
        return []

    def module(self, config, device):
        """MetaSchedule's best; ValueError if it has none."""
        from tvm.s_tir import meta_schedule as ms

        from nni_tensor_tuners.tasks.target import target_of

        database = ms.database.JSONDatabase(work_dir=config["folder"])
        found = database.query_schedule(_program(self.task), target_of(device), "main")
        if found is None:
            raise ValueError("MetaSchedule has no record of this workload")
        return found.mod


def _program(task):
    import tvm

    return tvm.IRModule({"main": task.prim_func().with_attr("global_symbol", "main")})


def main():
    from tvm.s_tir import meta_schedule as ms

    from nni_tensor_tuners.tasks.target import target_of

    name, trials, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    ms.tune_tir(
        _program(get_task(name)),
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
