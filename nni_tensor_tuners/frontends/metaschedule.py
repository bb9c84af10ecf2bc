"""Our searches inside TVM's MetaSchedule: a search strategy for ``tune_tir`` and ``tune_relax``.

    from nni_tensor_tuners.frontends.metaschedule import builder, runner, strategy

    database = meta_schedule.tune_tir(
        module, target, "work", max_trials_global=128, num_trials_per_iter=4,
        strategy=strategy("WalkGP"), builder=builder(), runner=runner(module), cost_model="random",
    )

MetaSchedule makes the sketches and records; the search proposes from them, and learns what was timed after every round. Its
cost model is not asked: "random" costs nothing. MetaSchedule's own runner checks no answers.
"""

import functools
import os
from types import SimpleNamespace

import tvm
from tvm.ir.utils import derived_object
from tvm.s_tir.meta_schedule.arg_info import ArgInfo
from tvm.s_tir.meta_schedule.builder import BuilderResult, PyBuilder
from tvm.s_tir.meta_schedule.builder.local_builder import default_export
from tvm.s_tir.meta_schedule.runner import PyRunner, PyRunnerFuture, RunnerResult
from tvm.s_tir.meta_schedule.search_strategy import MeasureCandidate, PySearchStrategy
from tvm.support.popen_pool import PopenPoolExecutor, StatusKind

from ..measure import Limits
from ..measure.child import first_line
from ..measure.lock import DeviceLock
from ..measure.reference import expected_output
from ..search import check_class_args, create_search
from ..space import SearchSpace
from ..study import Study
from ..tasks.compiling import compiled
from ..tasks.device import find_device, usable_cores
from ..tasks.features import describer
from ..tasks.program import Program, default, sketches
from ..tasks.program.load import save
from ..tasks.shared import shared_folder
from ..tasks.target import device_of

# A process that builds is replaced after so many: TVM's memory grows with them.
BUILDS_PER_PROCESS = 64


def strategy(search="WalkGP", seed=0, templates=True, **class_args):
    """A ``SearchStrategy`` of MetaSchedule that a search drives.

    Parameters
    ----------
    search, seed, class_args
        As for `create_search`.
    templates
        Whether our template of an operator is searched beside MetaSchedule's sketches, where the program is one.

    Raises
    ------
    ValueError
        If there is no such search, or an argument is not what it takes.
    """
    check_class_args(search, seed, **class_args)
    return _Strategy(search, seed, templates, class_args)


def builder(timeout=60.0, workers=None):
    """A builder for ``tune_tir`` whose processes stay from one round to the next.

    MetaSchedule's LocalBuilder starts its processes anew in every round, and each imports TVM for seconds. A search that learns
    after every round is better off with rounds of a few configurations.

    Parameters
    ----------
    timeout
        Seconds that a build may take; what takes longer is a failure.
    workers
        How many build at a time; by default a process for each core that we may use.
    """
    return _Builder(timeout, workers or usable_cores())


def runner(module, timeout=60.0, limits=Limits()):
    """A runner for ``tune_tir`` that measures as our trials do: the answer is compared with that of the program as it is, and
    the fastest of many repeats counts (on a GPU the median), with buffers in huge pages that start on their boundary.

    MetaSchedule's LocalRunner takes what the allocator gives, and one mean. Kernels that it finds slow may be fast ones.

    Parameters
    ----------
    module
        The IRModule or PrimFunc that is tuned.
    timeout
        Seconds that checking and timing may take; what takes longer is a failure.
    limits
        How carefully is timed, a `Limits`.

    Raises
    ------
    ValueError
        If it is no program as `Program` takes it.
    """
    function = module["main"] if isinstance(module, tvm.IRModule) else module
    return _Runner(Program(str(save(function, shared_folder()))), timeout, limits)


@derived_object
class _Builder(PyBuilder):
    def __init__(self, timeout, workers):
        super().__init__()
        self.timeout = timeout
        self.pool = PopenPoolExecutor(max_workers=workers, timeout=timeout, maximum_process_uses=BUILDS_PER_PROCESS)

    def build(self, build_inputs):
        modules = [(each.mod, each.target) for each in build_inputs]
        return [self._result(each) for each in self.pool.map_with_error_catching(_build, modules)]

    def _result(self, done):
        if done.status == StatusKind.COMPLETE:
            return BuilderResult(done.value, None)
        return BuilderResult(None, f"not built in {self.timeout} s" if done.status == StatusKind.TIMEOUT else str(done.value))


def _build(module_and_target):
    """Path of the archive that a module is compiled to, in a folder of its own, which MetaSchedule removes."""
    from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

    module, target = module_and_target
    return default_export(compiled(RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(module), target).mod)


@derived_object
class _Runner(PyRunner):
    def __init__(self, task, timeout, limits):
        super().__init__()
        self.task, self.timeout, self.limits = task, timeout, limits
        self.pool = PopenPoolExecutor(max_workers=1, timeout=timeout, maximum_process_uses=BUILDS_PER_PROCESS)
        self.best = None

    def run(self, runner_inputs):
        return [self._timed(str(each.artifact_path), str(each.device_type)) for each in runner_inputs]

    def _timed(self, path, kind):
        try:
            latency, error = self.pool.submit(_time, self.task, path, kind, self.limits, self.best).result()
        except TimeoutError:
            return _Timed(None, f"took longer than {self.timeout} s")
        except Exception as died:
            return _Timed(None, first_line(died))
        if error:
            return _Timed(None, error)
        self.best = min(self.best or latency, latency)
        return _Timed([latency / 1e3], None)


@derived_object
class _Timed(PyRunnerFuture):
    def __init__(self, seconds, error):
        super().__init__()
        self.seconds, self.error = seconds, error

    def done(self):
        return True

    def result(self):
        return RunnerResult(self.seconds, self.error)


def _time(task, path, kind, limits, best):
    """The latency in ms of a compiled kernel of a task, ``best`` the lowest so far, and None; or None, and what is wrong."""
    os.environ.setdefault("TVM_NUM_THREADS", str(usable_cores()))  # before TVM's threads start
    from ..measure import cores, worker

    try:
        inputs, expected = _answer(task)
        opened = functools.partial(worker.opened_here, SimpleNamespace(mod=tvm.runtime.load_module(path)), kind)
        disturbed = cores.disturbed if kind == "cpu" else None
        with DeviceLock(find_device(kind)).exclusive():
            timed = worker.check_and_time(opened, inputs, expected, task.tolerance, limits, best, disturbed)
    except Exception as error:
        return None, first_line(error)
    return timed["latency_ms"], None


@functools.lru_cache(1)
def _answer(task):
    inputs = task.inputs()
    return inputs, expected_output(task, inputs, shared_folder())


@derived_object
class _Strategy(PySearchStrategy):
    def __init__(self, search, seed, templates, class_args):
        self.search, self.seed, self.templates, self.class_args = search, seed, templates, class_args
        self.context = self.study = None

    def _initialize_with_tune_context(self, context):
        self.context = context

    def pre_tuning(self, max_trials, num_trials_per_iter, design_spaces, database=None, cost_model=None):
        module = self.context.mod
        made = sketches.of_schedules(module, design_spaces, device_of(self.context.target), self.templates)
        space = SearchSpace.from_json(sketches.search_space(made), sketches.constraints(made))
        self.arguments = ArgInfo.from_entry_func(module)
        self.left, self.per_round, self.asked = max_trials, num_trials_per_iter, 0
        build = sketches.builder(module, made, self.context.target)
        settle = sketches.settler(made, self.context.target, build)
        first = default.first(made, device_of(self.context.target))
        self.schedule = lambda config: sketches.schedule(module, made, config, self.context.target)[0]
        made_search = create_search(self.search, space, seed=self.seed, **self.class_args)
        describe = functools.partial(describer, module_of=lambda config: build(config)[0], target=self.context.target)
        self.study = Study(made_search, settle=settle, first=first, describe=describe)

    def post_tuning(self):
        self.study = None

    def generate_measure_candidates(self):
        ids = range(self.asked, self.asked + min(self.per_round, self.left))
        configs = self.study.ask(ids) if ids else []
        self.left -= len(configs)
        self.trials = ids[: len(configs)]
        self.asked += len(configs)
        return [MeasureCandidate(self.schedule(config), self.arguments) for config in configs] or None

    def notify_runner_results(self, measure_candidates, results):
        for trial, result in zip(self.trials, results):
            seconds = [float(each) for each in result.run_secs or ()]
            self.study.tell(trial, None if result.error_msg or not seconds else len(seconds) / sum(seconds))

    def clone(self):
        return _Strategy(self.search, self.seed, self.templates, self.class_args)
