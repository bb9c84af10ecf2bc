"""Whole networks: prepared, tuned as one experiment, compiled again."""

import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest
import tvm
import yaml
from conftest import wait_for
from model_answers import INPUT, MODELS, SMALL, answer
from nni_experiments import ended, experiment, journal, measured, registered  # noqa: F401
from tvm import relax

from nni_tensor_tuners import SearchSpace
from nni_tensor_tuners.cli import main
from nni_tensor_tuners.cli.progress import Progress
from nni_tensor_tuners.frontends import local
from nni_tensor_tuners.frontends.local import KNOWN, LocalStudy
from nni_tensor_tuners.frontends.nni.experiment import write_folder
from nni_tensor_tuners.networks.earlier import first_records, forget, known_records, remember
from nni_tensor_tuners.networks.finish import winners
from nni_tensor_tuners.networks.prepare import prepare
from nni_tensor_tuners.study import records
from nni_tensor_tuners.tasks import from_dict
from nni_tensor_tuners.tasks.device import find_device
from nni_tensor_tuners.tasks.network import Network, lower, models

CPU = find_device("cpu")


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    return prepare(SMALL, tmp_path_factory.mktemp("small"), CPU, Progress())


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """The same network with other weights, which are no part of its tasks."""
    return prepare(f"{SMALL}(seed=1)", tmp_path_factory.mktemp("other"), CPU, Progress())


def test_what_cannot_be_scheduled_is_left_as_it_is(tmp_path):
    text = f"{MODELS}:sorted_rows"
    made = prepare(text, tmp_path, CPU, Progress())
    assert list(made.tasks) == ["matmul"] and set(made.description["left"]) == {"sort"}
    data = np.random.default_rng(0).uniform(-1, 1, (8, 32)).astype("float32")
    built = lower.build(lower.lowered(models.read(text), CPU), [], CPU)
    np.testing.assert_allclose(answer(built, data), np.sort(np.repeat(data.sum(1, keepdims=True), 32, 1)), rtol=1e-4)


# A network as something to tune.


def test_default_schedules_are_sound_and_measured_once(network):
    defaults = first_records(network, CPU)
    assert len(defaults) == sum(len(task.defaults(CPU)) for task in network.tasks.values())
    assert all(record["error_code"] == 0 for record in defaults) and set(network.latencies(defaults)) == set(network.tasks)
    again = prepare(SMALL, os.path.dirname(network.path), CPU, Progress())
    assert again == network and first_records(again, CPU) == defaults


def test_a_configuration_is_that_of_one_task(network):
    space = SearchSpace.from_json(network.search_space(CPU), network.constraints(CPU))
    settle = network.settler(CPU)
    for config in network.first(CPU):
        assert space.contains(config)
        task, own = network.part(config)
        assert task == network.tasks[config["task"]["_name"]]
        assert settle(config) == config and task.settler(CPU)(own) == own
    assert sum(SearchSpace.from_json(task.search_space(CPU)).size for task in network.tuned.values()) == space.size


def test_the_estimate_is_equation_1(network):
    latencies = {name: float(place) for place, name in enumerate(network.tasks, 1)}
    expected = sum(network.counts[name] * latency for name, latency in latencies.items())
    assert network.estimate(latencies) == pytest.approx(expected)
    unknown, *known = network.tasks
    mean = sum(latencies[name] for name in known) / sum(network.flop[name] for name in known)
    partial = network.estimate({name: latencies[name] for name in known})
    rest = expected - network.counts[unknown] * latencies[unknown]
    assert partial == pytest.approx(rest + network.counts[unknown] * network.flop[unknown] * mean)


def test_what_was_measured_of_another_model_s_same_task_is_known(network, other, tmp_path):
    found = first_records(network, CPU)
    assert set(other.latencies(found)) == set(other.tasks)
    for record in found:
        config = other.config_of(record)
        assert (config is None) == (other._name_of(record) not in other.tuned)
    wider = prepare(f"{SMALL}(channels=48)", tmp_path / "wider", CPU, Progress())
    assert not [name for name in wider.latencies(found) if "conv2d" in name]


def test_plain_data_and_a_file_that_has_changed(network, tmp_path):
    assert from_dict(json.loads(json.dumps(network.to_dict()))) == network
    with pytest.raises(ValueError, match="network: cannot read"):
        Network(str(tmp_path / "none.json"))
    with pytest.raises(ValueError, match="has changed: its sha256 is"):
        Network(network.path, "0" * 64)


# From a model to a faster one.


def run_model(folder):
    done = subprocess.run([sys.executable, "run_model.py", "0.1"], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_onnx_file_to_a_faster_model_without_nni(tmp_path, monkeypatch, capsys):
    onnx = pytest.importorskip("onnx")
    path = onnx_model(onnx, tmp_path)
    monkeypatch.chdir(tmp_path)
    assert main(["tune", path.name, "--trials", "6", "--local"]) == 0
    printed = capsys.readouterr().out
    folder = tmp_path / "runs" / "small" / "walkgp-saving"
    assert "estimate" in printed and "model.so" in printed
    assert {"model.so", "run_model.py", "example.npz", "model.json", "report.png", "database"} <= set(os.listdir(folder))
    found = records.read(folder / records.RECORDS)
    assert len(found) == 6 and {record["config"]["task"]["_name"] for record in found} > set()
    assert "largest difference from the untuned model" in run_model(folder)
    with np.load(folder / "example.npz") as example:
        np.testing.assert_allclose(example["output000"], by_numpy(example["input000"]), rtol=1e-3, atol=1e-5)
    summary = json.loads((folder / "model.json").read_text())
    assert {"untuned", "default schedules", "tuned"} <= {name for name, ms in summary["latency_ms"].items() if ms > 0}
    assert summary["exported"] == min(["tuned", "default schedules"], key=summary["latency_ms"].get)
    # Another search knows what this one measured, and goes on from what it knew when it began.
    monkeypatch.setenv("HOME", str(tmp_path))  # nnictl knows no experiment there
    monkeypatch.setattr(local, "finish", lambda *args: None)  # as above
    known = {}
    for output, options in [("all", []), ("none", ["--fresh"]), ("named", ["--fresh", "--warm-start", str(folder)])]:
        assert main(["tune", path.name, "--local", "--trials", "1", "--output", output, *options]) == 0
        known[output] = {json.dumps(record["config"]) for record in records.read(tmp_path / output / KNOWN)}
    assert capsys.readouterr().out.count("6 measurements of its tasks are known from earlier experiments") == 2
    assert known["all"] == known["named"] == known["none"] | {json.dumps(record["config"]) for record in found}
    assert len(known["all"]) == len(known["none"]) + 6
    again = records.read(tmp_path / "all" / records.RECORDS)
    assert not known["all"] & {json.dumps(record["config"]) for record in again}


def some_trials(network, folder, trials, known):
    """The records of a study of a network; it goes on where the one in the folder stopped."""
    class_args = {"inner": "Random", **network.scheduling()}
    study = LocalStudy(network, CPU, "TaskScheduler", 0, class_args, folder / records.RECORDS, {}, known=known)
    return list(study.run(trials))


def test_what_an_earlier_experiment_measured_is_known_and_not_measured_again(network, other, tmp_path):
    defaults = first_records(other, CPU)
    assert known_records(other, CPU) == defaults
    first = some_trials(network, tmp_path, 4, first_records(network, CPU))
    sources = [tmp_path / records.RECORDS]
    assert remember(other, CPU, sources) == len(defaults) + 4 == remember(other, CPU, sources)  # nothing twice
    known = known_records(other, CPU)
    assert other.latencies(known) == other.latencies([*defaults, *first])
    (tmp_path / "other").mkdir()
    again = some_trials(other, tmp_path / "other", 4, known)
    assert not {json.dumps(record["config"]) for record in again} & {json.dumps(record["config"]) for record in known}
    assert again[0]["estimate_ms"] <= other.estimate(other.latencies(known))
    best = {name: (config, seconds) for name, config, seconds in winners(other, [*known, *again], CPU, rounds=1)}
    assert set(best) == set(other.latencies(known))  # the end chooses among them, too
    forget(other)
    assert known_records(other, CPU) == defaults


RNG = np.random.default_rng(0)
KERNEL, SCALE, SHIFT = RNG.uniform(-1, 1, (16, 3, 1, 1)), RNG.uniform(0.5, 2, 16), RNG.uniform(-1, 1, 16)
KERNEL, SCALE, SHIFT = (each.astype("float32") for each in (KERNEL, SCALE, SHIFT))


def onnx_model(onnx, folder, batch="N", weights=True, kind="Conv"):
    """A convolution, batch normalisation, bounds and the mean over the image, as ``onnx.helper`` writes it."""
    helper, arrays = onnx.helper, onnx.numpy_helper
    bounds = {"lo": np.float32(0), "hi": np.float32(6)}
    constants = {"w": KERNEL, "s": SCALE, "b": SHIFT, "m": 0 * SHIFT, "v": 1 + 0 * SCALE, **bounds}
    nodes = [
        helper.make_node(kind, ["x", "w"], ["c"]),
        helper.make_node("BatchNormalization", ["c", "s", "b", "m", "v"], ["n"], epsilon=0.0),
        helper.make_node("Clip", ["n", "lo", "hi"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["y"]),
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "small",
        [value("x", onnx.TensorProto.FLOAT, [batch, 3, 32, 32])],
        [value("y", onnx.TensorProto.FLOAT, [batch, 16, 1, 1])],
        [arrays.from_array(np.asarray(each), name) for name, each in constants.items() if weights or name != "w"],
    )
    path = folder / "small.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def by_numpy(x):
    product = np.einsum("nchw,fc->nfhw", x, KERNEL[:, :, 0, 0])
    return np.clip(product * SCALE[:, None, None] + SHIFT[:, None, None], 0, 6).mean(axis=(2, 3), keepdims=True)


def test_through_nni_stopped_and_resumed(experiment, tmp_path, capsys):  # noqa: F811
    folder = tmp_path / "small"
    made = prepare(SMALL, folder, CPU, Progress())
    paths = write_folder(folder, "small", "", made, [CPU], class_args={"inner": "OpEvo"})
    (path,) = (each for each in paths if each.suffix == ".yml")
    assert path.name == "taskscheduler.yml" and main(["check", str(path)]) == 0
    content = yaml.safe_load(path.read_text())
    class_args = {**content["tuner"]["classArgs"], "warm_start": [str(folder / "defaults.jsonl")]}
    manager = experiment(
        content["trialCommand"],
        json.loads((folder / "search_space.json").read_text()),
        "TaskScheduler",
        code=folder,
        trials=12,
        concurrency=2,
        **class_args,
    )
    wait_for(lambda: len(measured(manager)) >= 4)
    manager.stop()
    before = measured(manager)
    resumed = experiment.resume(manager.experiment_id)
    assert ended(resumed) == "DONE"
    after = measured(resumed)
    assert after[: len(before)] == before and len(after) == 12
    configs = [json.dumps(record["config"], sort_keys=True) for record in after]
    assert len(set(configs)) == 12
    known = [json.dumps(record["config"], sort_keys=True) for record in first_records(made, CPU)]
    assert not set(configs) & set(known)  # default schedules are not measured again
    # A search goes by a task's own latency, and NNI shows what the network takes.
    told = {json.dumps(entry["parameters"], sort_keys=True): entry for entry in journal(resumed, "tell")}
    for record in filter(records.succeeded, after):
        entry = told[json.dumps(record["config"], sort_keys=True)]
        assert entry["fitness"] == pytest.approx(1 / record["latency_ms"])
        if isinstance(entry["value"], dict):
            assert entry["value"]["default"] == record["estimate_ms"]
    latencies = made.latencies([*first_records(made, CPU), *after])
    assert min(record["estimate_ms"] for record in after) == pytest.approx(made.estimate(latencies))
    resumed.stop()
    assert main(["report", str(resumed.folder), "--output", str(tmp_path / "curve.png")]) == 0
    assert main(["export", str(resumed.folder), "--output", str(tmp_path / "best")]) == 0
    assert "12 trials on" in capsys.readouterr().out
    run_model(tmp_path / "best")


def test_a_model_of_pytorch(tmp_path):
    torch = pytest.importorskip("torch")
    layers = torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.BatchNorm2d(16), torch.nn.ReLU(), torch.nn.Flatten()
    model = torch.nn.Sequential(*layers, torch.nn.Linear(16 * 16 * 16, 10)).eval()
    torch.export.save(torch.export.export(model, (torch.from_numpy(INPUT),)), tmp_path / "model.pt2")
    built = lower.build(lower.lowered(models.read(str(tmp_path / "model.pt2")), CPU), [], CPU)
    (found,) = relax.VirtualMachine(built, tvm.cpu())["main"](tvm.runtime.tensor(INPUT))
    np.testing.assert_allclose(found.numpy(), model(torch.from_numpy(INPUT)).detach().numpy(), rtol=1e-4, atol=1e-5)


# What cannot be tuned is said in one line.


@pytest.mark.parametrize(
    "model, complaint",
    [
        (f"{MODELS}:dynamic", "input data has a dynamic shape; give it one that is fixed"),
        (f"{MODELS}:nothing_to_tune", "none of its 1 tasks has more than one schedule"),
        (f"{MODELS}:without_a_program", "TVM cannot lower it: .*pixel_shuffle"),
        ("none.onnx", "model none.onnx: there is no such file"),
        ("resnet18(depth=3)", "model resnet18.depth=3.: .*unexpected keyword argument 'depth'"),
    ],
)
def test_a_model_that_cannot_be_tuned(model, complaint, tmp_path, monkeypatch, capsys):
    pytest.importorskip("onnx")
    monkeypatch.chdir(tmp_path)
    assert main(["tune", model, "--local", "--trials", "4"]) == 1
    error = capsys.readouterr().err.strip()
    assert error.count("\n") == 0 and error.startswith("error: model ")
    assert re.search(complaint, error), error


@pytest.mark.parametrize(
    "change, complaint",
    [
        ({"weights": False}, "its weights are missing: there is no w"),
        ({"kind": "NoSuchOperator"}, "NoSuchOperator"),
    ],
)
def test_an_onnx_file_that_cannot_be_tuned(change, complaint, tmp_path):
    onnx = pytest.importorskip("onnx")
    path = onnx_model(onnx, tmp_path, **change)
    with pytest.raises(ValueError, match=complaint) as raised:
        models.read(str(path))
    assert "\n" not in str(raised.value)


def test_the_batch_of_an_onnx_file(tmp_path):
    onnx = pytest.importorskip("onnx")
    path = onnx_model(onnx, tmp_path)
    assert [int(each) for each in models.read(str(path), 4)["main"].params[0].ty.shape] == [4, 3, 32, 32]


def test_options_of_models_are_refused_elsewhere(capsys):
    assert main(["tune", "mm1", "--batch", "8"]) == 1
    assert "--batch: it is for models, and mm1 is none" in capsys.readouterr().err
