"""Searches that see what programs are like: `AutoTVM` and `WalkGP`, alone and with what was measured of other programs."""

import json
import random
from collections import Counter

import numpy as np
import pytest

from nni_tensor_tuners import SearchSpace, create_search
from nni_tensor_tuners.frontends.local import LocalStudy
from nni_tensor_tuners.frontends.nni.settings import read_histories
from nni_tensor_tuners.search.described import Described
from nni_tensor_tuners.search.walkgp.program_sources import ProgramSources
from nni_tensor_tuners.search.walkgp.programs import Programs
from nni_tensor_tuners.study import Objective, Study, records
from nni_tensor_tuners.tasks.device import find_device
from nni_tensor_tuners.tasks.features import vector
from nni_tensor_tuners.tasks.matmul import Matmul
from nni_tensor_tuners.tasks.program import Program
from nni_tensor_tuners.tasks.recorded import features_of
from nni_tensor_tuners.tasks.target import target_of

CPU = find_device("cpu")
SPACE = {"name": {"_type": "choice", "_value": list(range(512))}}
HIDDEN = random.Random(0).sample(range(512), 512)
SIGHTED = [("AutoTVM", {"batch_size": 8}), ("WalkGP", {})]


def hidden(config):
    """What a program is like, which its name does not tell; of odd ones there is none."""
    return None if config["name"] % 2 else np.array([HIDDEN[config["name"]]], dtype=float)


def told(search, features, class_args, seed=0):
    """The fitness of 64 configurations, the hidden number."""
    search = create_search(search, SearchSpace.from_json(SPACE), seed=seed, features=features, **class_args)
    settle = lambda config: None if hidden(config) is None else config  # noqa: E731
    study = Study(search, settle=settle, describe=lambda kind: hidden)
    return [trial.fitness for trial in study.run(lambda config: (float(HIDDEN[config["name"]]), None), 64)]


@pytest.mark.parametrize("search, class_args", SIGHTED)
def test_a_search_sees_programs(search, class_args):
    best = sorted((HIDDEN[name] for name in range(0, 512, 2)), reverse=True)
    seen = [told(search, "relation", class_args, seed) for seed in range(3)]
    for seed, sighted in enumerate(seen):
        blind = told(search, "configuration", class_args, seed)
        assert len(set(best[:16]) & set(sighted)) > len(set(best[:16]) & set(blind))
    assert max(seen[0]) == best[0]
    assert seen[0] == told(search, "relation", class_args)


@pytest.mark.parametrize("kind, class_args", [("AutoTVM", {"batch_size": 8}), ("WalkGP", {})])
def test_a_search_proposes_no_twin_of_what_it_has_proposed(kind, class_args):
    """Every four names have one program. What is asked for at once is all different, too; `WalkGP` finds out a twin once only."""
    first, found_out = {}, Counter()
    for name, number in enumerate(HIDDEN):
        first.setdefault(number // 4, name)

    def settle(config):
        built = first[HIDDEN[config["name"]] // 4]
        found_out[config["name"]] += built != config["name"]
        return {"name": built}

    search = create_search(kind, SearchSpace.from_json(SPACE), seed=0, features="relation", **class_args)
    search.see(lambda config: np.array([HIDDEN[config["name"]] // 4], dtype=float), settle)
    found = []
    for _ in range(12):
        proposed = search.ask(4)
        found += proposed
        for config in proposed:
            search.tell(config, float(HIDDEN[config["name"]] // 4))
            search.exclude(settle(config))
    assert kind == "AutoTVM" or max(found_out.values()) == 1
    by_model = found[16:]  # before, trees have learned nothing
    assert [settle(config) for config in by_model] == by_model
    seen_before = {settle(config)["name"] for config in found[:16]}
    assert len({config["name"] for config in by_model} - seen_before) == len(by_model)


def test_a_program_described_is_not_made_again_to_be_proposed(monkeypatch):
    """Nor to be measured, when it is asked about as what it is built as."""
    task = Program("softmax(n=16, m=48)")
    space = SearchSpace.from_json(task.search_space(CPU), task.constraints(CPU))
    describe, settle, rng = task.describer(CPU, "relation"), task.settler(CPU), random.Random(0)
    configs = [space.sample(rng) for _ in range(8)]
    made = [describe(config) for config in configs]
    monkeypatch.setattr("nni_tensor_tuners.tasks.program.sketches.schedule", None)
    described = [config for config, features in zip(configs, made) if features is not None]
    settled = [settle(config) for config in described]
    assert len(settled) > 4 and None not in settled and settled != described
    assert [settle(config) for config in settled] == settled


def test_programs_described_at_once_are_as_described_one_by_one():
    task = Program("softmax(n=16, m=32)")
    space = SearchSpace.from_json(task.search_space(CPU), task.constraints(CPU))
    rng = random.Random(0)
    points = list({space.random_point(rng): None for _ in range(24)})
    describe = task.describer(CPU, "relation")
    described, one_by_one = Described(space, describe), {point: describe(space.config(point)) for point in points}
    known = described.known(points)
    assert known == [point for point in points if one_by_one[point] is not None]
    assert np.array_equal(described.rows(known), [one_by_one[point] for point in known])


def test_no_score_has_a_part_in_what_is_predicted_for_it():
    rng = np.random.default_rng(0)
    noise, scores = rng.standard_normal((64, 8)), rng.standard_normal(64)
    points = [(number,) for number in range(64)]
    space = SearchSpace.from_json({"number": {"_type": "choice", "_value": list(range(96))}})
    describe = lambda config: rng.standard_normal(8) if config["number"] > 63 else noise[config["number"]]  # noqa: E731
    programs = Programs(space, Described(space, describe))
    assert programs.known(points) == points
    assert not programs.trend(points).any()
    programs.learn(points, scores)
    assert abs(np.corrcoef(programs.trend(points), scores)[0, 1]) < 0.4
    within = np.mean([model.inplace_predict(noise) for model in programs._models], axis=0)
    assert np.corrcoef(within, scores)[0, 1] > 0.8


def test_trees_learn_what_sources_leave_of_the_scores():
    """Of scores that are what sources say and a step, which they know nothing of, the step."""
    rng = np.random.default_rng(0)
    features = rng.standard_normal((128, 2))
    sources = ProgramSources([[*zip(features, np.exp(features[:, 0]))]])
    space = SearchSpace.from_json({"number": {"_type": "choice", "_value": list(range(128))}})
    programs = Programs(space, Described(space, lambda config: features[config["number"]]), sources)
    points = programs.known([(number,) for number in range(128)])
    step = np.sign(features[:, 1])
    scores = sources.mean(features) + step
    programs.learn(points, scores)
    assert np.corrcoef(programs.trend(points), step)[0, 1] > 0.9
    assert np.square(programs.trends(points).sum(axis=1) - scores).mean() < 0.1 * scores.var()


def test_programs_sources_and_failures_together():
    space = SearchSpace.from_json({"x": {"_type": "factor", "_value": [256, 3]}})
    fitness = lambda config: None if config["x"][1] > 32 else 1 / (1 + abs(config["x"][2] - 16))  # noqa: E731
    search = create_search("WalkGP", space, seed=0, features="relation")
    search.transfer([[(config, fitness(config)) for config in create_search("Random", space, seed=1).ask(30)]])
    describe = lambda config: np.array(config["x"], dtype=float)  # noqa: E731
    study = Study(search, describe=lambda kind: describe)
    found = [trial.fitness for trial in study.run(lambda config: (fitness(config), None), 24, batch=2)]
    assert max(filter(None, found)) == 1


def test_without_a_task_there_are_no_programs():
    search = create_search("AutoTVM", SearchSpace.from_json(SPACE), features="loop")
    with pytest.raises(ValueError, match="features: loop are of programs"):
        Study(search).ask([0])
    for elsewhere in ([({"name": 0}, 1.0)], [([1.0], 1.0), ([1.0, 2.0], 1.0)]):
        with pytest.raises(ValueError, match="transfer: expected features of programs, loop, all of one length"):
            search.transfer([elsewhere])
    with pytest.raises(ValueError, match="features must be one of configuration, loop, relation, store"):
        create_search("AutoTVM", SearchSpace.from_json(SPACE), features="paper")


@pytest.mark.parametrize("search, class_args", [("AutoTVM", {}), ("Bansor", {"inner": "AutoTVM"})])
def test_a_program_tuned_by_its_features(search, class_args, tmp_path):
    own = {"batch_size": 4, "features": "relation"}
    class_args = {**class_args, "inner_args": own} if class_args else own
    task = Program("matmul(n=24, k=32, m=40)")
    study = LocalStudy(task, CPU, search, 0, class_args, tmp_path / "records.jsonl", {})
    records = list(study.run(10))
    assert len(records) == 10 and all(record["error_code"] == 0 for record in records)


@pytest.mark.parametrize("name, class_args", [("AutoTVM", {"batch_size": 8, "epsilon": 0}), ("WalkGP", {"initial": 8})])
def test_what_programs_are_like_is_transferred_between_spaces_without_a_parameter_in_common(name, class_args):
    """What is known are features and their fitness: the first of them is the distance from what is good."""
    space = SearchSpace.from_json({"x": {"_type": "factor", "_value": [2**9, 3]}})
    describe = lambda config: np.array([abs(np.log2(config["x"][2]) - 4), np.log2(config["x"][0])])  # noqa: E731
    rng = np.random.default_rng(0)
    vectors = rng.integers(0, 9, (200, 2)).astype(float)
    elsewhere = [[(list(vector), 1 / (1 + vector[0])) for vector in vectors]]
    first = {}
    for told in (False, True):
        search = create_search(name, space, seed=0, features="relation", **class_args)
        if told:
            search.transfer(elsewhere)
        search.see(describe)
        first[told] = [describe(config)[0] for config in search.ask(8)]
    assert np.mean(first[True]) < 1 < np.mean(first[False])


def test_walkgp_begins_with_what_programs_elsewhere_call_best_of_random_ones_the_best_first():
    space = SearchSpace.from_json({"name": {"_type": "choice", "_value": list(range(256))}})
    search = create_search("WalkGP", space, seed=0, features="relation", initial=6)
    elsewhere = [([number], float(number)) for number in range(0, 256, 4)]
    search.transfer([elsewhere])
    search.see(lambda config: np.array([config["name"]], dtype=float))
    first = [config["name"] for config in search.ask(12)]
    said = ProgramSources([elsewhere]).mean([[number] for number in first])
    assert (np.diff(said) <= 0).all() and min(first) >= 256 * 14 // 16


def transferred_over_branches(initial, trials, fitness):
    """The numbers that WalkGP proposes in four branches of 64 numbers each, if elsewhere the higher number was the better."""
    numbers = [{"_type": "choice", "_value": list(range(first, first + 64))} for first in range(0, 256, 64)]
    branches = [{"_name": str(place), "number": each} for place, each in enumerate(numbers)]
    space = SearchSpace.from_json({"sketch": {"_type": "choice", "_value": branches}})
    search = create_search("WalkGP", space, seed=0, features="relation", initial=initial)
    search.transfer([[([number], float(number)) for number in range(0, 256, 4)]])
    search.see(lambda config: np.array([config["sketch"]["number"]], dtype=float))
    proposed = []
    for _ in range(trials):
        (config,) = search.ask(1)
        search.tell(config, fitness(config["sketch"]["number"]))
        proposed.append(config["sketch"]["number"])
    return proposed


def test_walkgp_follows_what_programs_elsewhere_say_where_it_is_so():
    """It has a look at other branches, and finds the best, which was not among the random ones that it began with."""
    by_model = transferred_over_branches(3, 12, float)[6:]
    assert max(by_model) == 255 and np.median(by_model) > 256 * 3 // 4


def test_walkgp_hears_that_programs_elsewhere_are_wrong_after_twice_as_many_trials_as_initial_says_whatever_the_branches():
    proposed = transferred_over_branches(4, 14, lambda number: 1 / (1 + number))
    assert min(proposed[:8]) > 256 * 3 // 4 > min(proposed[8:])


def test_walkgp_finds_the_best_where_programs_elsewhere_say_the_contrary():
    space = SearchSpace.from_json({"x": {"_type": "factor", "_value": [2**9, 3]}})
    far = lambda config: abs(np.log2(config["x"][2]) - 4)  # noqa: E731
    search = create_search("WalkGP", space, seed=0, features="relation")
    search.transfer([[([distance], float(distance)) for distance in range(6) for _ in range(4)]])
    search.see(lambda config: np.array([far(config)]))
    for _ in range(24):
        for config in search.ask(1):
            search.tell(config, 1 / (1 + far(config)))
    assert max(search.results.values()) == 1.0


def test_walkgp_learns_of_programs_elsewhere_where_two_trials_succeeded():
    search = create_search("WalkGP", SearchSpace.from_json(SPACE), features="relation")
    with pytest.raises(ValueError, match="transfer: fewer than two trials succeeded there"):
        search.transfer([[([1.0], 1.0), ([2.0], None)]])
    with pytest.raises(ValueError, match="transfer: expected features of programs, all of one length"):
        search.transfer([[([1.0], 1.0), ([2.0, 3.0], 2.0)]])
    search.transfer([[([1.0], 1.0), ([2.0], 2.0)]])
    with pytest.raises(ValueError, match="it is not known of which: give the task"):
        search.ask()


@pytest.mark.parametrize("stored", [True, False])
def test_records_of_one_operator_serve_another(stored, tmp_path, monkeypatch):
    """Measured: a product of matrices. Told: a convolution's search, by the programs' features, stored or made anew."""
    path = tmp_path / "records.jsonl"
    study = LocalStudy(Matmul(32, 32, 32), CPU, "Random", 0, {}, path, {}, features=["relation"] if stored else [])
    assert len(list(study.run(4))) == 4
    found = records.read(path)
    assert [set(record.get("features", {})) for record in found] == [{"relation"} if stored else set()] * 4
    made = [describe_by_hand(record) for record in found]
    if stored:
        monkeypatch.setattr("nni_tensor_tuners.tasks.recorded.from_dict", None)  # nothing is made
    (history,) = read_histories([str(path)], Objective(), "relation")
    np.testing.assert_array_equal([vector for vector, _ in history], made)
    assert [fitness for _, fitness in history] == [record["tflops"] for record in found]
    for name, class_args in SIGHTED:
        search = create_search(name, SearchSpace.from_json(SPACE), features="relation", **class_args)
        assert search.transfer_features == "relation"
        search.transfer([history])
    path.write_text(json.dumps({"config": {"x": 1}, "error_code": 0, "tflops": 1.0}) + "\n")
    with pytest.raises(ValueError, match="no record is of a program that can be made here, or has its relation features"):
        read_histories([str(path)], Objective(), "relation")


def test_features_of_another_version_are_made_anew(tmp_path):
    path = tmp_path / "records.jsonl"
    study = LocalStudy(Matmul(32, 32, 32), CPU, "Random", 0, {}, path, {}, features=["relation"])
    assert len(list(study.run(1))) == 1
    (found,) = records.read(path)
    older = {**found, "features": {"relation": [0.0] * 176}}
    for version in (1, None):
        np.testing.assert_array_equal(features_of({**older, "features_version": version}, "relation"), describe_by_hand(found))
    assert features_of(older, "relation") == [0.0] * 176


def describe_by_hand(record):
    return vector("relation", Matmul(32, 32, 32).module(record["config"], CPU), target_of(CPU))
