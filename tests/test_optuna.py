"""Our searches as samplers of Optuna, in real studies."""

import json
import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from nni_tensor_tuners import Exhausted, SearchSpace, create_search
from nni_tensor_tuners.frontends.optuna import SearchSampler, UsedUp, WalkGPSampler
from nni_tensor_tuners.frontends.optuna.space import Parameter
from nni_tensor_tuners.search import SEARCHES

optuna.logging.set_verbosity(optuna.logging.ERROR)
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:optuna")  # of choices that no database can keep

CONSTRAINED = hasattr(optuna.Trial, "set_constraint")  # from Optuna 5 on
TILES = [1, 2, 4, 8, 16, 32]
TILED = {
    "x": CategoricalDistribution(TILES),
    "y": IntDistribution(1, 8),
    "z": FloatDistribution(0, 1, step=0.25),
    "order": CategoricalDistribution(["ij", "ji"]),
}


def suggested(trial):
    return {name: trial._suggest(name, each) for name, each in TILED.items()}


def planted(config):
    """Highest, 100, at x = 8, y = 5, z = 0.5 and order "ji"."""
    distance = abs(TILES.index(config["x"]) - 3) + abs(config["y"] - 5) + 4 * abs(config["z"] - 0.5) + (config["order"] == "ij")
    return 100 / (1 + distance)


def tiles(trial):
    return planted(suggested(trial))


def study_of(sampler, objective=tiles, trials=0, direction="maximize", storage=None, **how):
    study = optuna.create_study(storage=storage, sampler=sampler, direction=direction, study_name="s", load_if_exists=True)
    if trials:
        study.optimize(objective, n_trials=trials, **how)
    return study


def measured(study):
    """Configurations of a study's trials, as text."""
    return [json.dumps(trial.params, sort_keys=True) for trial in study.trials if trial.params]


def distinct(study):
    found = measured(study)
    return len(found) == len(set(found))


@pytest.fixture(params=["sqlite", "journal"])
def storage_of(request, tmp_path):
    """A function that opens the same storage anew."""
    if request.param == "sqlite":
        return lambda: optuna.storages.RDBStorage(f"sqlite:///{tmp_path}/study.db")
    return lambda: JournalStorage(JournalFileBackend(str(tmp_path / "journal")))


# What is proposed.


def test_it_finds_a_planted_optimum_of_a_space_that_it_infers():
    study = study_of(WalkGPSampler(seed=0), trials=60)
    assert study.best_value == 100
    assert distinct(study)


def test_it_finds_a_planted_optimum_of_a_space_that_it_is_given():
    study = study_of(WalkGPSampler(TILED, ["y * z <= 4", "order == 'ji' or x > 1"], seed=0), trials=50)
    assert study.best_value == 100
    assert distinct(study)
    assert all(each.params["y"] * each.params["z"] <= 4 for each in study.trials)
    assert all(each.params["order"] == "ji" or each.params["x"] > 1 for each in study.trials)


@pytest.mark.parametrize("search", [name for name, entry in SEARCHES.items() if not entry.networks])
def test_every_search_is_a_sampler_and_proposes_what_it_proposes_elsewhere(search):
    study = study_of(SearchSampler(search, TILED, seed=3), trials=30)
    space = SearchSpace.from_json(
        {
            "x": {"_type": "discrete", "_value": TILES},
            "y": {"_type": "randint", "_value": [1, 9]},
            "z": {"_type": "discrete", "_value": [0.0, 0.25, 0.5, 0.75, 1.0]},
            "order": {"_type": "choice", "_value": ["ij", "ji"]},
        }
    )
    alone, configs = create_search(search, space, seed=3), []
    for _ in range(30):
        configs += alone.ask(1)
        alone.tell(configs[-1], planted(configs[-1]))
    assert [each.params for each in study.trials] == configs


def test_to_minimise_is_to_maximise_mirrored():
    def params(direction, value):
        study = study_of(WalkGPSampler(TILED), lambda trial: value(planted(suggested(trial))), 20, direction)
        return [each.params for each in study.trials]

    highest = params("maximize", lambda value: value)
    assert params("minimize", lambda value: -value) == highest
    assert params("minimize", lambda value: 1 / value) == highest  # a time
    assert params("maximize", lambda value: -1 / value) == highest


def test_values_of_both_signs():
    study = study_of(WalkGPSampler(TILED, seed=1), lambda trial: 20 - planted(suggested(trial)), 50, "minimize")
    assert study.best_value == -80
    assert distinct(study)


def test_the_same_seed_gives_the_same_search():
    first, second, other = (
        [each.params for each in study_of(WalkGPSampler(seed=seed), trials=12).trials] for seed in (5, 5, 6)
    )
    assert first == second != other


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_every_value_goes_to_optuna_and_back(data):
    low = data.draw(st.integers(-20, 20))
    count, step = data.draw(st.integers(1, 30)), data.draw(st.integers(1, 7))
    plain = st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_nan=False) | st.text(max_size=2)
    distribution = data.draw(
        st.sampled_from(
            [
                IntDistribution(low, low + count * step, step=step),
                IntDistribution(abs(low) + 1, abs(low) + count, log=True),
                FloatDistribution(low / 10, (low + count) / 10, step=step / 100),
                FloatDistribution(low / 7, low / 7),
                CategoricalDistribution(data.draw(st.lists(plain, min_size=1, unique=True))),
                CategoricalDistribution([(1, 2), (3,), {"a": low}]),
            ]
        )
    )
    parameter = Parameter("p", distribution)
    for label in parameter.labels:
        value = parameter.value(label)
        internal = distribution.to_internal_repr(value)
        assert distribution._contains(internal)
        assert parameter.label(distribution.to_external_repr(internal)) == label == parameter.at(internal)
    drawn = optuna.samplers.RandomSampler(seed=0).sample_independent(None, None, "p", distribution)
    assert parameter.label(drawn) in parameter.labels


def test_numbers_listed_in_their_order_are_near_one_another():
    kinds = {
        "discrete": [[8, 16, 64], [2.5, 1], [7]],
        "choice": [[8, 64, 16], ["a"], [0, None], [False, True], [1.0, float("inf")], [(1,), (2,)]],
    }
    for kind, several in kinds.items():
        assert {Parameter("p", CategoricalDistribution(values)).kind for values in several} == {kind}


# What happens to trials.


def test_a_study_is_resumed_and_nothing_is_measured_twice(storage_of):
    study_of(WalkGPSampler(TILED, seed=2), trials=15, storage=storage_of())
    study = study_of(WalkGPSampler(TILED, seed=2), trials=25, storage=storage_of())
    assert len(study.trials) == 40 and distinct(study)
    assert study.best_value == 100


RESUME = """
import sys
sys.path.insert(0, {tests!r})
from test_optuna import *
study_of(WalkGPSampler(TILED, seed=2), trials=int(sys.argv[2]), storage=optuna.storages.RDBStorage(sys.argv[1]))
"""


def test_processes_side_by_side_measure_nothing_twice(tmp_path):
    url = f"sqlite:///{tmp_path}/study.db"
    study = study_of(WalkGPSampler(TILED, seed=2), storage=url)
    code = RESUME.format(tests=str(Path(__file__).parent))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    workers = [subprocess.Popen([sys.executable, "-c", code, url, "15"], env=environment) for _ in range(2)]
    assert [worker.wait(timeout=120) for worker in workers] == [0, 0]
    assert len(study.trials) == 30 and distinct(study)
    study.optimize(tiles, n_trials=10)
    assert distinct(study)


def test_two_that_propose_the_same_at_the_same_time_find_out(tmp_path):
    url = f"sqlite:///{tmp_path}/study.db"
    other = study_of(WalkGPSampler({"x": IntDistribution(0, 1)}, seed=0), storage=url)
    given, taken = {"x": IntDistribution(0, 1)}, []

    class Overtaken(SearchSampler):
        """Another process proposes and writes between its own look at the storage and its own writing."""

        def _propose(self, study, trial, internal):
            if not taken:
                taken.append(other.ask(given).params["x"])
            super()._propose(study, trial, internal)

    study = study_of(Overtaken("WalkGP", given, seed=0), storage=url)
    assert study.ask(given).params["x"] == 1 - taken[0]


def test_threads_measure_nothing_twice():
    study = study_of(WalkGPSampler(TILED, seed=0), trials=40, n_jobs=2)
    assert len(study.trials) == 40 and distinct(study)


def test_running_trials_are_known_before_they_have_suggested_anything(storage_of):
    first, second = (study_of(WalkGPSampler(TILED, seed=0), storage=storage_of()) for _ in range(2))
    trials = [study.ask({"x": TILED["x"]}) for _ in range(10) for study in (first, second)]
    configs = [json.dumps(suggested(trial), sort_keys=True) for trial in trials]
    assert len(set(configs)) == 20
    for trial, config in zip(trials, configs):  # in whatever order they end, and by whom they are told
        second.tell(trial.number, planted(json.loads(config)))
    assert json.dumps(suggested(first.ask()), sort_keys=True) not in configs


def test_what_fails_is_survived_and_not_proposed_again():
    def fails_half(trial):
        config = suggested(trial)
        if config["order"] == "ij":
            raise RuntimeError("no such order")
        if config["y"] < 3:
            return float("nan")
        if config["y"] > 7:
            return float("inf")
        if config["x"] == 1:
            raise optuna.TrialPruned
        return planted(config)

    study = study_of(WalkGPSampler(TILED, seed=0), fails_half, 60, catch=RuntimeError)
    failed = [each for each in study.trials if each.state != TrialState.COMPLETE]
    assert failed and distinct(study)
    assert max(each.value for each in study.trials if each.value not in (None, float("inf"))) == 100


def test_nothing_but_failures():
    study = study_of(WalkGPSampler(seed=0), lambda trial: suggested(trial) and None, 25)
    assert len(measured(study)) == 25 and distinct(study)


def test_a_pruned_trial_counts_with_what_it_reported_last_and_an_infeasible_one_as_failed():
    sampler = WalkGPSampler({"x": IntDistribution(0, 9)}, seed=0)

    def objective(trial):
        x = trial.suggest_int("x", 0, 9)
        if x == 3:
            trial.report(1.0, 0)
            trial.report(5.0, 1)
            raise optuna.TrialPruned
        if CONSTRAINED:
            trial.set_constraint("fits", x - 8)
        return x

    study = study_of(sampler, objective, 10)
    with pytest.raises(Exhausted):  # and the search is told what came last
        study.ask({"x": IntDistribution(0, 9)})
    results = {sampler._live.space.ours.config(point)["x"]: told for point, told in sampler._live.search.results.items()}
    assert results == {**{x: float(x) for x in range(9)}, 3: 5.0, 9: None if CONSTRAINED else 9.0}


def test_trials_that_fail_before_they_have_suggested_everything_do_not_end_a_study():
    def objective(trial):
        x = trial.suggest_int("x", 0, 1)
        if trial.number < 5:
            return None
        return x + trial.suggest_int("y", 0, 9)

    study = study_of(WalkGPSampler(seed=0), objective, 15)
    complete = [each.params for each in study.trials if each.state == TrialState.COMPLETE]
    assert len(complete) == 10 and len({str(each) for each in complete}) == 10


def test_trials_added_by_hand_count():
    study = study_of(WalkGPSampler(TILED, seed=0))
    config = {"x": 8, "y": 5, "z": 0.5, "order": "ji"}
    study.add_trial(optuna.trial.create_trial(params=config, distributions=TILED, value=100.0))
    study.add_trial(optuna.trial.create_trial(params={"x": 3}, distributions={"x": IntDistribution(0, 9)}, value=1e9))
    study.optimize(tiles, n_trials=30)
    assert distinct(study)


def test_what_an_enqueued_trial_leaves_open_is_legal_and_new():
    study = study_of(WalkGPSampler(TILED, ["x * y <= 8"], seed=0))
    for _ in range(6):
        study.enqueue_trial({"x": 4, "order": "ij"})
    study.enqueue_trial({"x": 8, "y": 1, "z": 0.5, "order": "ji"})
    study.enqueue_trial({"y": 9, "order": "ij"})  # there is no such y
    study.optimize(tiles, n_trials=30)
    assert [(each.params["x"], each.params["order"]) for each in study.trials[:6]] == [(4, "ij")] * 6
    assert study.trials[6].params == {"x": 8, "y": 1, "z": 0.5, "order": "ji"}
    assert all(each.params["x"] * each.params["y"] <= 8 for each in study.trials if each.number != 7)
    assert distinct(study)


def test_parameters_that_only_some_trials_have_are_drawn_at_random():
    def branches(trial):
        kind = trial.suggest_categorical("kind", ["a", "b"])
        return trial.suggest_int("a", 0, 99) if kind == "a" else -trial.suggest_int("b", 0, 99)

    study = study_of(WalkGPSampler(seed=0), branches, 30)
    assert len(study.trials) == 30 and all(len(each.params) == 2 for each in study.trials)
    assert len({each.params.get("a") for each in study.trials}) > 5


def test_a_space_given_in_part():
    def objective(trial):
        return planted(suggested(trial)) + trial.suggest_float("continuous", 0, 1)

    study = study_of(WalkGPSampler({"x": TILED["x"], "y": TILED["y"]}, ["x * y == 40"], seed=0), objective, 4)
    assert [(each.params["x"], each.params["y"]) for each in study.trials[:1]] == [(8, 5)]
    assert len({each.params["continuous"] for each in study.trials}) == 4


def test_a_pruner_that_shows_samplers_a_part_of_the_trials():
    def objective(trial):
        value = tiles(trial)
        for step in range(9):
            trial.report(value, step)
            if trial.should_prune():
                raise optuna.TrialPruned
        return value

    study = optuna.create_study(
        direction="maximize", sampler=WalkGPSampler(TILED, seed=0), pruner=optuna.pruners.HyperbandPruner(1, 9)
    )
    study.optimize(objective, n_trials=40)
    assert distinct(study)


def test_one_sampler_for_two_studies_and_through_a_pickle():
    sampler = WalkGPSampler(TILED, seed=0)
    first = study_of(sampler, trials=10)
    second = study_of(pickle.loads(pickle.dumps(sampler)), trials=10)
    third = study_of(sampler, trials=10)
    assert [each.params for each in first.trials] == [each.params for each in second.trials]
    assert [each.params for each in first.trials] == [each.params for each in third.trials]


# The end.


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_study_stops_once_everything_has_been_proposed(jobs, caplog):
    sampler = WalkGPSampler({"x": IntDistribution(0, 5), "y": IntDistribution(0, 5)}, ["x + y <= 5"], seed=0)

    def objective(trial):
        return trial.suggest_int("x", 0, 5) + trial.suggest_int("y", 0, 5)

    study = study_of(sampler, objective, 100, n_jobs=jobs)
    assert len(measured(study)) == 21 and distinct(study)
    assert "every configuration has been proposed" in caplog.text
    study.optimize(objective, n_trials=100)  # again: it ends before anything is measured
    assert len(measured(study)) == 21
    assert study.trials[-1].state == TrialState.PRUNED


def test_who_asks_and_tells_is_told_of_the_end():
    given = {"x": CategoricalDistribution(["a", "b"])}
    study = study_of(WalkGPSampler(seed=0))
    for _ in range(2):
        study.tell(study.ask(given), 1.0)
    with pytest.raises(Exhausted):
        study.ask(given)
    assert issubclass(UsedUp, optuna.TrialPruned)


def test_an_end_in_several_threads_loses_nothing():
    barrier = threading.Barrier(2)

    def objective(trial):
        x = trial.suggest_int("x", 0, 9)
        if len(study.trials) < 4:
            barrier.wait(60)
        return x

    study = study_of(WalkGPSampler({"x": IntDistribution(0, 9)}, seed=0))
    study.optimize(objective, n_trials=50, n_jobs=2)
    assert sorted(each.params["x"] for each in study.trials if each.params) == list(range(10))


# What cannot be.


@pytest.mark.parametrize(
    "search_space, constraints, text",
    [
        ({"lr": FloatDistribution(0, 1)}, (), "parameter 'lr': a float without a step"),
        ({"lr": FloatDistribution(1e-3, 1, log=True)}, (), "parameter 'lr': a float without a step"),
        ({"n": IntDistribution(0, 10**9)}, (), "parameter 'n': 1000000001 values"),
        ({"c": CategoricalDistribution([1, True])}, (), "parameter 'c': values that are equal"),
        ({"c": [1, 2]}, (), r"parameter 'c': expected a distribution of Optuna's, got \[1, 2\]"),
        ({"x": IntDistribution(0, 9)}, ["y < 3"], "'y' is no parameter"),
        ({"x": IntDistribution(0, 9)}, ["x > 9"], "no configuration satisfies"),
        (None, ["x > 9"], "search_space"),
        ({}, (), "non-empty"),
    ],
)
def test_what_cannot_be_searched_is_refused_in_one_line(search_space, constraints, text):
    with pytest.raises(ValueError, match=text) as caught:
        WalkGPSampler(search_space, constraints)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("arguments", [("NoSuch",), ("OpEvo", None, (), "seed")])
def test_a_bad_search_or_seed_is_refused(arguments):
    with pytest.raises(ValueError, match="NoSuch|seed"):
        SearchSampler(*arguments)
    with pytest.raises(ValueError, match="initial"):
        WalkGPSampler(initial=0)


def test_a_float_without_a_step_is_refused_where_it_is_suggested():
    study = study_of(WalkGPSampler())
    with pytest.raises(ValueError, match="parameter 'lr': a float without a step"):
        study.optimize(lambda trial: trial.suggest_float("lr", 0, 1), n_trials=3)
    assert [each.state for each in study.trials] == [TrialState.FAIL]


def test_an_objective_that_suggests_another_range_is_refused():
    study = study_of(WalkGPSampler({"x": IntDistribution(0, 9)}, seed=0))
    with pytest.raises(ValueError, match="parameter 'x': search_space has .*high=9.*suggests .*high=29"):
        study.optimize(lambda trial: trial.suggest_int("x", 20, 29), n_trials=3)


def test_more_than_one_objective_is_refused():
    study = optuna.create_study(directions=["minimize", "maximize"], sampler=WalkGPSampler())
    with pytest.raises(ValueError, match="takes one objective, this study has 2"):
        study.optimize(lambda trial: (trial.suggest_int("x", 0, 9), 1), n_trials=3)
