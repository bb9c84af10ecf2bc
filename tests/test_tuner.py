import json
import math

import pytest
from test_search import SMALL

from nni_tensor_tuners import SearchSpace, create_search, report
from nni_tensor_tuners.frontends.nni.settings import make_search
from nni_tensor_tuners.frontends.nni.tuner import TensorTuner
from nni_tensor_tuners.search import SEARCHES
from nni_tensor_tuners.study import Objective, records

SPACE = {"X": {"_type": "factor", "_value": [64, 3]}, "u": {"_type": "discrete", "_value": [0, 16, 64]}}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "checkpoint").mkdir()
    monkeypatch.setenv("NNI_CHECKPOINT_DIRECTORY", str(tmp_path / "checkpoint"))
    monkeypatch.delenv("NNI_MODE", raising=False)
    return tmp_path


def started(space=SPACE, search="OpEvo", **class_args):
    tuner = TensorTuner(search, **class_args)
    tuner.update_search_space(space)
    return tuner


def told(tuner):
    return {
        json.dumps(tuner._study.search.space.config(point)): fitness for point, fitness in tuner._study.search.results.items()
    }


@pytest.mark.parametrize(
    "value, expected",
    [
        (2.5, 2.5),
        ({"default": 2.5, "error_code": 0}, 2.5),
        ({"default": 2.5}, 2.5),
        ({"default": 2.5, "error_code": 5}, None),
        ({"tflops": 2.5}, None),
        ("2.5", 2.5),
        ("fast", None),
        (None, None),
        (math.nan, None),
        (math.inf, None),
        ("nan", None),
        (True, None),
        ([2.5], None),
    ],
)
def test_metrics_as_nni_delivers_them(value, expected):
    assert Objective().fitness(value) == expected


def test_minimise_is_strictly_decreasing_and_positive():
    latencies = [1e-6, 0.5, 1, 2, 1e6]
    fitness_of = Objective("minimize").fitness
    fitness = [fitness_of(latency) for latency in latencies]
    assert fitness == sorted(fitness, reverse=True) and len(set(fitness)) == 5 and min(fitness) > 0
    assert fitness_of(0) is None and fitness_of(-1) is None and fitness_of(math.inf) is None


@pytest.mark.parametrize("search", SEARCHES)
def test_minimise_and_maximise_are_the_same_search_on_mirrored_objectives(folder, search):
    def history(mode, metric):
        tuner, configs = started(search=search, optimize_mode=mode, **SMALL.get(search, {})), []
        for i in range(60):
            (config,) = tuner.generate_multiple_parameters([i])
            configs.append(config)
            tuner.receive_trial_result(i, config, metric(config))
        return configs

    def speed(config):
        return 2.0 ** (config["X"][0] % 7 - config["u"] % 5)

    assert history("maximize", speed) == history("minimize", lambda config: 1 / speed(config))


def test_results_count_for_the_configuration_that_was_handed_out(folder):
    tuner = started()
    configs = tuner.generate_multiple_parameters([0, 1, 2])
    tuner.receive_trial_result(0, configs[1], 1.0)  # NNI says that trial 0 had the parameters of trial 1
    tuner.receive_trial_result(2, "", 3.0)
    assert told(tuner) == {json.dumps(configs[0]): 1.0, json.dumps(configs[2]): 3.0}


def test_late_and_double_calls(folder):
    tuner = started()
    first, second = tuner.generate_multiple_parameters([0, 1])
    tuner.trial_end(0, False)
    assert told(tuner) == {json.dumps(first): None}
    tuner.receive_trial_result(0, first, 2.0)  # it had come over the other, slower queue
    tuner.receive_trial_result(1, second, 5.0)
    tuner.trial_end(1, False)  # reported, then crashed
    tuner.trial_end(0, False)
    tuner.trial_end(99, False)
    tuner.receive_trial_result(98, None, 1.0)
    assert told(tuner) == {json.dumps(first): 2.0, json.dumps(second): 5.0}


def test_a_silent_death_is_recorded_with_an_error_code(folder):
    tuner = started()
    (config,) = tuner.generate_multiple_parameters([0])
    tuner.trial_end(0, False)
    (record,) = records.read(folder / records.RECORDS)
    assert (record["config"], record["error_code"]) == (config, 8)


def test_a_trial_that_recorded_and_died_before_it_reported_has_succeeded(folder):
    tuner = started()
    (config,) = tuner.generate_multiple_parameters([0])
    records.append(folder / records.RECORDS, {"config": config, "error_code": 0, "tflops": 9.0})
    tuner.trial_end(0, False)
    assert told(tuner) == {json.dumps(config): 9.0}


def test_a_success_that_comes_after_a_failure_is_recorded(folder):
    tuner = started(optimize_mode="minimize")
    (config,) = tuner.generate_multiple_parameters([0])
    tuner.trial_end(0, True)
    tuner.receive_trial_result(0, config, 2.5)
    (found,) = report.load(folder)
    assert (found["error_code"], found["latency_ms"]) == (0, 2.5)
    warm = started(optimize_mode="minimize", warm_start=str(folder / records.RECORDS))
    assert told(warm) == {json.dumps(config): 1 / 2.5}


def test_slots_left_empty_are_served_when_the_space_grows(folder):
    sent = []
    tuner = started({"u": {"_type": "discrete", "_value": [0, 16, 64]}})
    tuner._ending = True  # there is no manager to end
    configs = tuner.generate_multiple_parameters([0, 1, 2, 3, 4], st_callback=lambda *args: sent.append(args))
    assert len(configs) == 3
    tuner.update_search_space({"u": {"_type": "discrete", "_value": [0, 16, 64, 256, 512, 1024]}})
    assert [parameter_id for parameter_id, _ in sent] == [3, 4]
    assert not any(config in configs for _, config in sent)


def test_constraints_by_device_kind(folder):
    by_kind = {"constraints": {"cpu": ["u == 16"], "cuda": ["u == 64"]}}
    assert make_search("Random", SPACE, by_kind, "cpu").ask(1)[0]["u"] == 16
    assert make_search("Random", SPACE, by_kind, "cuda").ask(1)[0]["u"] == 64


def test_resume_knows_every_result_and_proposes_what_never_ran(folder, monkeypatch):
    tuner = started(seed=1)
    configs = tuner.generate_multiple_parameters(list(range(6)))
    for i in range(3):
        tuner.receive_trial_result(i, configs[i], float(i + 1))
    records.append(
        folder / records.RECORDS, {"config": configs[3], "error_code": 0, "tflops": 9.0}
    )  # not told before the crash
    with open(folder / records.JOURNAL, "a", encoding="utf-8") as journal:
        journal.write('{"event": "ask", "parame')  # the line that the crash cut short

    monkeypatch.setenv("NNI_MODE", "resume")
    monkeypatch.setattr("nni_tensor_tuners.frontends.nni.channel.configs_that_run_again", lambda: [configs[4]])
    resumed = started(seed=1)
    resumed.import_data([{"parameter": configs[0], "value": 777.0}])  # NNI's mispaired account
    assert told(resumed) == {json.dumps(c): f for c, f in zip(configs[:4], [1.0, 2.0, 3.0, 9.0])}
    proposed = resumed.generate_multiple_parameters(list(range(1, 30)))
    assert proposed[0] == configs[5]
    assert not any(config in configs[:5] for config in proposed)
    resumed.import_data([{"parameter": configs[4], "value": 4.0}])  # the trial that NNI ran again
    assert told(resumed)[json.dumps(configs[4])] == 4.0


def test_warm_start_from_an_earlier_record(folder, tmp_path):
    earlier = tmp_path / "earlier" / records.RECORDS
    earlier.parent.mkdir()
    space = SearchSpace.from_json(SPACE)
    configs = create_search("Random", space, seed=9).ask(20)
    for i, config in enumerate(configs):
        failed = i % 4 == 0
        records.append(earlier, {"config": config, "error_code": 4 * failed, "tflops": float(i), "latency_ms": 1.0})
    records.append(earlier, {"config": {"X": [3], "u": 0}, "error_code": 0, "tflops": 1e9})  # of some other space
    tuner = started(warm_start=str(earlier.parent))
    assert len(told(tuner)) == 20
    assert [fitness for _, fitness in tuner._study.search.parents] == [19.0, 18.0, 17.0, 15.0, 14.0, 13.0, 11.0, 10.0]
    assert not any(config in configs for config in tuner.generate_multiple_parameters(list(range(8))))


def test_transfer_from_another_shape(folder, tmp_path):
    other = tmp_path / "other.jsonl"
    for exponent in range(8):  # of a loop twice as long; long inner tiles are good
        config = {"X": [2 ** (7 - exponent), 1, 2**exponent], "u": 16}
        records.append(other, {"config": config, "error_code": 0, "tflops": 2.0**exponent})
    records.append(other, {"config": {"X": [128, 1, 1], "u": 0}, "error_code": 4})
    tuner = started(search="AutoTVM", transfer=str(other), epsilon=0, diversity=0, candidates=1, batch_size=4)
    assert told(tuner) == {}  # nothing of it is a result of this space
    assert all(config["X"][1] * config["X"][2] == 64 for config in tuner.generate_multiple_parameters([0, 1, 2, 3]))


def test_walkgp_takes_the_same_transfer(folder, tmp_path):
    other = tmp_path / "other.jsonl"
    for exponent in range(8):
        config = {"X": [2 ** (7 - exponent), 1, 2**exponent], "u": 16}
        records.append(other, {"config": config, "error_code": 0, "tflops": 2.0**exponent})
    tuner = started(search="WalkGP", transfer=[str(other)])
    (config,) = tuner.generate_multiple_parameters([0])
    assert told(tuner) == {} and config == {"X": [1, 1, 64], "u": 16}  # the best of there, as far as it fits here


def test_records_cut_short_lose_one_line_only(tmp_path):
    path = tmp_path / "r.jsonl"
    records.append(path, {"a": 1})
    path.write_text(path.read_text() + '{"a": 2, "b')
    records.append(path, {"a": 3})
    assert records.read(path) == [{"a": 1}, {"a": 3}]
    assert records.read(tmp_path / "none") == []


@pytest.mark.parametrize(
    "class_args, message",
    [
        ({"optimize_mode": "max"}, "optimize_mode must be one of maximize, minimize, got 'max'"),
        ({"optimise_mode": "maximize"}, "OpEvo has no argument 'optimise_mode'"),
        ({"parent_size": 8}, "OpEvo has no argument 'parent_size'; did you mean 'parents_size'"),
        ({"constraints": {"gpu": []}}, "constraints: there is no device kind 'gpu'; .*allowed: cuda, cpu"),
        ({"constraints": "X[0] < 3"}, "constraints: expected a list"),
        ({"constraints": ["X[0] << 3"]}, "constraint 'X\\[0\\] << 3': .* is not allowed"),
    ],
)
def test_bad_class_args_are_named_in_one_line(class_args, message):
    with pytest.raises(ValueError, match=message) as caught:
        make_search("OpEvo", SPACE, class_args, "cpu")
    assert "\n" not in str(caught.value)
