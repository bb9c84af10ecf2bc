"""Our searches inside TVM's MetaSchedule."""

import tempfile

import numpy as np
import pytest
from conftest import TESTS

from nni_tensor_tuners.tasks.device import find_device
from nni_tensor_tuners.tasks.program import Program
from nni_tensor_tuners.tasks.target import target_of


def in_this_process(folder):
    """A builder and a runner of MetaSchedule's that compile and time here: its own start workers that import for a minute."""
    import tvm
    from tvm.ir.utils import derived_object
    from tvm.s_tir import meta_schedule as ms

    @derived_object
    class Builder(ms.builder.PyBuilder):
        def build(self, build_inputs):
            paths = []
            for each in build_inputs:
                paths.append(f"{tempfile.mkdtemp(dir=folder)}/kernel.so")  # MetaSchedule removes the folder it is in
                tvm.compile(each.mod, target=each.target).export_library(paths[-1])
            return [ms.builder.BuilderResult(path, None) for path in paths]

    @derived_object
    class Timed(ms.runner.PyRunnerFuture):
        def __init__(self, seconds):
            self.seconds = seconds

        def done(self):
            return True

        def result(self):
            return ms.runner.RunnerResult(self.seconds, None)

    @derived_object
    class Runner(ms.runner.PyRunner):
        def run(self, runner_inputs):
            timed = []
            for each in runner_inputs:
                arrays = [np.ones([int(extent) for extent in about.shape], str(about.dtype)) for about in each.args_info]
                arguments = [tvm.runtime.tensor(array) for array in arrays]
                kernel = tvm.runtime.load_module(each.artifact_path)
                timed.append(Timed(list(kernel.time_evaluator("main", tvm.cpu(), number=1)(*arguments).results)))
            return timed

    return Builder(), Runner()


def test_a_search_of_ours_tunes_in_metaschedule_and_its_database_has_what_it_found(tmp_path):
    import tvm
    from tvm.s_tir import meta_schedule as ms

    from nni_tensor_tuners.frontends.metaschedule import strategy

    builder, runner = in_this_process(tmp_path)
    task, target = Program(f"{TESTS / 'my_ops.py'}:product"), target_of(find_device("cpu"))
    task.sketches(find_device("cpu"))  # reads TVM's tensor instructions but for CUDA's, which take MetaSchedule ten seconds
    database = ms.tune_tir(
        task.source,
        target,
        str(tmp_path / "work"),
        max_trials_global=6,
        num_trials_per_iter=4,
        strategy=strategy("OpEvo", parents_size=4),
        cost_model="random",
        builder=builder,
        runner=runner,
        seed=1,
    )
    found = database.get_all_tuning_records()
    assert len({str(record.trace) for record in found}) == 6
    assert all(float(record.run_secs[0]) < 1 for record in found)
    kernel = tvm.compile(ms.tir_integration.compile_tir(database, task.source, target).mod, target=target)
    arguments = [tvm.runtime.tensor(array) for array in (*task.inputs(), np.zeros(task.shapes[-1], "float32"))]
    kernel.mod["main"](*arguments)
    np.testing.assert_allclose(arguments[-1].numpy(), task.reference(*task.inputs()), rtol=1e-4, atol=1e-4)


def test_the_builder_s_processes_stay(tmp_path):
    import psutil
    import tvm
    from tvm.s_tir import meta_schedule as ms

    from nni_tensor_tuners.frontends.metaschedule import builder

    def children():
        return {each.pid for each in psutil.Process().children()}

    task, target = Program(f"{TESTS / 'my_ops.py'}:product"), target_of(find_device("cpu"))
    inputs = [ms.builder.BuilderInput(task.source, target)]
    (late,) = builder(timeout=0.01, workers=1).build(inputs)
    assert (late.artifact_path, late.error_msg) == (None, "not built in 0.01 s")
    before, ours = children(), builder(workers=1)
    (good,) = ours.build(inputs)
    (worker,) = children() - before
    ours.build(inputs)
    assert children() - before == {worker}
    assert good.error_msg is None
    arguments = [tvm.runtime.tensor(array) for array in (*task.inputs(), np.zeros(task.shapes[-1], "float32"))]
    tvm.runtime.load_module(good.artifact_path)["main"](*arguments)
    np.testing.assert_allclose(arguments[-1].numpy(), task.reference(*task.inputs()), rtol=1e-4, atol=1e-4)


def test_the_runner_times_right_answers_and_refuses_wrong_ones(tmp_path):
    import tvm
    from tvm.s_tir import meta_schedule as ms

    from nni_tensor_tuners.frontends.metaschedule import runner

    target = target_of(find_device("cpu"))
    task, other = Program(f"{TESTS / 'my_ops.py'}:product"), Program(f"{TESTS / 'my_ops.py'}:transposed_product")
    inputs = []
    for number, each in enumerate((task, other, task)):
        path = str(tmp_path / f"{number}.so")
        tvm.compile(each.source, target=target).export_library(path)
        inputs.append(ms.runner.RunnerInput(path, "cpu", ms.arg_info.ArgInfo.from_entry_func(task.source)))
    inputs.append(ms.runner.RunnerInput(str(tmp_path / "absent.so"), "cpu", inputs[0].args_info))
    right, wrong, again, absent = (each.result() for each in runner(task.source).run(inputs))
    assert right.error_msg is None and again.error_msg is None
    assert all(0 < float(seconds) < 1 for each in (right, again) for seconds in each.run_secs)
    assert wrong.run_secs is None and "elements differ from the reference" in wrong.error_msg
    assert absent.run_secs is None and "absent.so" in absent.error_msg


def test_a_search_that_does_not_exist_is_named():
    from nni_tensor_tuners.frontends.metaschedule import strategy

    with pytest.raises(ValueError, match="unknown search 'Walk'"):
        strategy("Walk")
    with pytest.raises(ValueError, match="parents_size"):
        strategy("OpEvo", parents_size=0)


def test_compile_relax_finds_what_was_tuned_of_a_model_s_task(tmp_path):
    """A dense layer as Relax makes it of a model: product, bias and ReLU in one program, our template among its sketches."""
    import random

    import tvm
    from tvm import relax
    from tvm.s_tir import meta_schedule as ms

    from nni_tensor_tuners import SearchSpace
    from nni_tensor_tuners.export import write_database

    device = find_device("cpu")
    target = target_of(device)
    builder = relax.BlockBuilder()
    x, w, b = (relax.Var(name, relax.TensorType(shape, "float32")) for name, shape in zip("xwb", ((32, 48), (48, 64), (64,))))
    with builder.function("main", [x, w, b]):
        with builder.dataflow():
            biased = builder.emit(relax.op.add(builder.emit(relax.op.matmul(x, w)), b))
            output = builder.emit_output(builder.emit(relax.op.nn.relu(biased)))
        builder.emit_func_output(output)
    model = builder.finalize()
    passes = relax.transform
    fused = [passes.LegalizeOps(), passes.AnnotateTIROpPattern(), passes.FoldConstant(), passes.FuseOps(), passes.FuseTIR()]
    (extracted,) = ms.relax_integration.extract_tasks(tvm.transform.Sequential(fused)(model), target)
    (tmp_path / "dense.json").write_text(tvm.ir.save_json(extracted.dispatched[0]))
    task = Program(str(tmp_path / "dense.json"))
    assert task.sketches(device)[-1]["name"] == "template of matmul"
    space, rng = SearchSpace.from_json(task.search_space(device), task.constraints(device)), random.Random(0)
    config = next(c for c in iter(lambda: space.sample(rng), None) if c["sketch"]["_name"] == "template of matmul")
    record = {"workload": task.to_dict(), "device": device.label(), "config": config, "retimed_ms": 0.1}
    write_database([record], tmp_path / "database")

    database = ms.database.JSONDatabase(work_dir=str(tmp_path / "database"))
    assert database.query_schedule(extracted.dispatched[0], target, "main") is not None
    compiled = ms.relax_integration.compile_relax(database, model, target, None)
    inputs = task.inputs()
    found = relax.VirtualMachine(compiled, tvm.cpu())["main"](*map(tvm.runtime.tensor, inputs)).numpy()
    np.testing.assert_allclose(found, np.maximum(inputs[0] @ inputs[1] + inputs[2], 0), rtol=1e-4, atol=1e-4)
