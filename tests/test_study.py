"""The ask-measure-tell loop, by itself."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nni_tensor_tuners import SearchSpace, create_search
from nni_tensor_tuners.study import Objective, Study, records

SPACE = {"X": {"_type": "factor", "_value": [64, 3]}, "u": {"_type": "discrete", "_value": [0, 16, 64]}}
SMALL = {"u": {"_type": "discrete", "_value": [0, 16, 64]}}


def study(space=SPACE, name="OpEvo", journal=None, constraints=(), **class_args):
    return Study(create_search(name, SearchSpace.from_json(space, constraints), **class_args), journal)


def told(of):
    return {json.dumps(of.search.space.config(point)): fitness for point, fitness in of.search.results.items()}


def speed(config):
    return float(config["X"][1] + config["u"])


def test_run_measures_each_configuration_once_until_none_is_left():
    measured = []
    trials = list(study(SMALL).run(lambda config: (measured.append(config) or config["u"], "note"), 100))
    assert sorted(config["u"] for config in measured) == [0, 16, 64]
    assert [trial.config for trial in trials] == measured
    assert all((trial.fitness, trial.value) == (trial.config["u"], "note") for trial in trials)


def test_a_batch_is_asked_before_any_of_it_is_told():
    events = []
    one = study()
    tell = one.search.tell
    one.search.tell = lambda config, fitness: (events.append("told"), tell(config, fitness))
    list(one.run(lambda config: (events.append("measured") or 1.0, None), 7, batch=3))
    assert events == (["measured"] * 3 + ["told"] * 3) * 2 + ["measured", "told"]


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1000), batch=st.integers(1, 5))
def test_the_loop_is_the_same_search_as_asking_and_telling_by_hand(seed, batch):
    by_run = [trial.config for trial in study(seed=seed).run(lambda config: (speed(config), None), 30, batch)]
    search = create_search("OpEvo", SearchSpace.from_json(SPACE), seed=seed)
    by_hand = []
    while len(by_hand) < 30:
        configs = search.ask(min(batch, 30 - len(by_hand)))
        by_hand += configs
        for config in configs:
            search.tell(config, speed(config))
    assert by_run == by_hand


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1000), batch=st.integers(1, 5))
def test_what_cannot_be_scheduled_is_not_handed_out_and_counts_as_failed(seed, batch):
    space = SearchSpace.from_json(SMALL | {"v": {"_type": "randint", "_value": [0, 4]}})
    one = Study(create_search("OpEvo", space, seed=seed), settle=lambda config: config if config["u"] != 16 else None)
    handed = [trial.config for trial in one.run(lambda config: (1.0, None), 100, batch)]
    assert sorted((config["u"], config["v"]) for config in handed) == [(u, v) for u in (0, 64) for v in range(4)]
    assert len(one.search.results) == 12 and one.exhausted
    assert {
        config["u"] for config in map(space.config, one.search.results) if one.search.results[space.point(config)] is None
    } == {16}


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1000), batch=st.integers(1, 5), name=st.sampled_from(["OpEvo", "Random", "GBFS"]))
def test_of_configurations_that_are_built_alike_one_is_measured_and_all_are_told(tmp_path_factory, seed, batch, name):
    """All of one u are built as the one with the highest v."""
    space = SearchSpace.from_json(SMALL | {"v": {"_type": "randint", "_value": [0, 4]}})
    journal = tmp_path_factory.mktemp("study") / "journal"

    def begun():
        return Study(create_search(name, space, seed=seed), journal, settle=lambda config: {**config, "v": 3})

    one = begun()
    handed = [trial.config for trial in one.run(lambda config: (float(config["u"]), None), 100, batch)]
    assert sorted((config["u"], config["v"]) for config in handed) == [(0, 3), (16, 3), (64, 3)]
    fitness = {point: space.config(point)["u"] for point in space.points(one.search.rng)}
    assert one.search.results == fitness
    again = begun()
    again.resume([], list)
    assert again.search.results == fitness


def test_what_was_refused_is_known_after_a_resume(tmp_path):
    def begun():
        return Study(
            create_search("Random", SearchSpace.from_json(SMALL)),
            tmp_path / "journal",
            lambda config: config if config["u"] != 16 else None,
        )

    before = begun()
    list(before.run(lambda config: (1.0, None), 2))  # both that can be scheduled
    before.ask([2])
    after = begun()
    after.resume([], list)
    assert told(after) == told(before) and 16 in [config["u"] for config in map(json.loads, told(after))]


def test_pending_trials_end_when_told_and_late_results_count():
    one = study()
    first, second = one.ask(["a", "b"])
    assert one.pending == {"a": first, "b": second}
    one.tell("a", None)
    one.tell("a", 2.0)  # it had come over another, slower way
    one.tell("b", 5.0)
    one.tell("b", None)  # reported, then crashed
    assert one.pending == {}
    assert told(one) == {json.dumps(first): 2.0, json.dumps(second): 5.0}


def test_what_nobody_asked_for_counts_if_it_is_in_the_space():
    one = study()
    assert one.tell(None, 3.0, config={"X": [64, 1, 1], "u": 0}) == {"X": [64, 1, 1], "u": 0}
    assert one.tell("nobody", 3.0) is None
    one.tell(None, 3.0, config={"X": [63, 1, 1], "u": 0})
    assert told(one) == {json.dumps({"X": [64, 1, 1], "u": 0}): 3.0}


def test_no_configuration_at_all_is_an_error_and_none_left_is_the_end():
    with pytest.raises(ValueError, match="no configuration satisfies"):
        study(SMALL, constraints=["u > 64"]).ask([0])
    one = study(SMALL)
    assert len(one.ask(range(5))) == 3
    assert one.ask([7]) == [] and one.exhausted


def test_resume_knows_every_result_and_asks_again_what_was_cut_short(tmp_path):
    journal = tmp_path / "journal.jsonl"
    before = study(journal=journal)
    configs = before.ask(range(6))
    for trial in range(3):
        before.tell(trial, float(trial + 1))
    with open(journal, "a", encoding="utf-8") as file:
        file.write('{"event": "ask", "parame')  # the line that a crash cut short
    after = study(journal=journal)
    assert after.resume([(configs[3], 9.0, 3)], lambda: [configs[4]])
    assert told(after) == {json.dumps(config): fitness for config, fitness in zip(configs, [1.0, 2.0, 3.0, 9.0])}
    assert after.rerun == [configs[4]]
    proposed = after.ask(range(20))
    assert proposed[0] == configs[5] and not any(config in configs[:5] for config in proposed)


def test_a_search_of_another_space_takes_over_what_is_in_it():
    one = study(SMALL, "Random")
    first, *pending = one.ask(range(3))
    one.tell(0, 1.0)
    numbers = [*(config["u"] for config in (first, *pending)), 128, 256]
    one.move_to(create_search("Random", SearchSpace.from_json({"u": {"_type": "discrete", "_value": numbers}})))
    assert told(one) == {json.dumps(first): 1.0}
    assert sorted(config["u"] for config in one.ask(range(9))) == [128, 256]


def test_records_are_read_by_the_objective(tmp_path):
    path = tmp_path / records.RECORDS
    records.append(path, {"config": {"u": 0}, "error_code": 0, "tflops": 4.0, "latency_ms": 2.0})
    records.append(path, {"config": {"u": 16}, "error_code": 5, "tflops": 9.0})
    records.append(path, {"event": "no trial"})
    assert records.history(records.read(path), Objective()) == [({"u": 0}, 4.0), ({"u": 16}, None)]
    assert records.history(records.read(path), Objective("minimize"))[0] == ({"u": 0}, 0.5)


def test_a_record_is_completed_once_and_a_failure_does_not_follow_a_success(tmp_path):
    path = tmp_path / records.RECORDS
    failed, fine = {"config": {"u": 0}, "error_code": 8}, {"config": {"u": 0}, "error_code": 0, "tflops": 1.0}
    for record in (failed, failed, fine, fine, failed):
        records.complete(path, record)
    assert records.read(path) == [failed, fine]
