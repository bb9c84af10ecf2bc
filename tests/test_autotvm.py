"""AutoTVM: the cost model, the annealing, the choice of a batch, transfer."""

import logging
import math
import random
import re
from itertools import combinations
from statistics import NormalDist, mean, stdev

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_search import MM1, planted, run
from test_space import spaces

from nni_tensor_tuners import SearchSpace, create_search
from nni_tensor_tuners.search.autotvm import expected_improvement, normalised
from nni_tensor_tuners.search.cost_model import CostModel
from nni_tensor_tuners.space import Choice, Discrete, Factor, Permutation


def search_on(json_space=MM1, **class_args):
    return create_search("AutoTVM", SearchSpace.from_json(json_space), **{"seed": 0, **class_args})


def agreement(scores, truth):
    """Fraction of pairs that the scores order as the truth does."""
    pairs = [(i, j) for i, j in combinations(range(len(truth)), 2) if truth[i] != truth[j]]
    return mean(bool((scores[i] > scores[j]) == (truth[i] > truth[j])) for i, j in pairs)


def test_features_of_every_type_of_parameter():
    assert Factor("X", 48, 4).tree_features((2, 3, 4, 2)) == [2, 3, 4, 2, 8, 24]  # factors, then extents of inner tiles
    assert Factor("X", 48, 1).tree_features((48,)) == [48]
    assert Discrete("u", [0, 64]).tree_features(64) == [64]
    assert Choice("c", ["a", "b", "c"]).tree_features(1) == [0, 1, 0]
    assert Permutation("o", ["i", "j", "k"]).tree_features((2, 0, 1)) == [2, 3, 1]


@settings(max_examples=100, deadline=None)
@given(spaces, st.integers(0, 99))
def test_a_value_from_elsewhere_has_the_features_it_has_here(json_space, seed):
    for parameter in SearchSpace.from_json(json_space).parameters:
        vertex = parameter.sample(random.Random(seed))
        features = parameter.features_of_value(parameter.decode(vertex))
        assert features == parameter.tree_features(vertex)
        assert features[: len(parameter.features(vertex))] == parameter.features(vertex)
        assert all(type(x) is float for x in features)


def test_values_that_only_another_space_has():
    assert Factor("X", 48, 3).features_of_value([5, 7, 11]) == [5, 7, 11, 77]
    assert Discrete("u", [0, 64]).features_of_value(32) == [32]


@pytest.mark.parametrize(
    "parameter, value, message",
    [
        (Factor("X", 8, 2), [8], r"'X': expected 2 factors, got \[8\]"),
        (Factor("X", 8, 2), 8, "'X': expected 2 factors, got 8"),
        (Factor("X", 8, 2), [4, 0], r"'X': expected 2 factors, got \[4, 0\]"),
        (Factor("X", 8, 2), [4, True], r"'X': expected 2 factors, got \[4, True\]"),
        (Discrete("u", [0, 1]), True, "'u': expected a number, got True"),
        (Discrete("u", [0, 1]), "1", "'u': expected a number, got '1'"),
        (Discrete("u", [0, 1]), math.nan, "'u': expected a number, got nan"),
        (Choice("c", [4, 8]), 1, r"'c': expected one of \[4, 8\], got 1"),
        (Permutation("o", ["i", "j"]), ["i", "k"], "'o': expected one of"),
    ],
)
def test_values_that_mean_nothing_here_are_named(parameter, value, message):
    with pytest.raises(ValueError, match=f"search space parameter {message}"):
        parameter.features_of_value(value)


def test_labels_go_from_the_worst_to_the_best_and_failures_are_the_worst():
    assert list(normalised([1.0, 4.0, None, 2.0])) == [0.25, 1.0, 0.0, 0.5]
    assert list(normalised([-3.0, -1.0, None])) == [0.0, 1.0, 0.0]
    assert list(normalised([5.0, 5.0])) == [0.0, 0.0]
    assert list(normalised([2.0, 6.0])) == [0.0, 1.0]


@pytest.mark.parametrize("objective", ["rank", "regression"])
def test_the_cost_model_orders_what_it_has_not_seen(objective):
    generator = np.random.default_rng(0)
    features = generator.random((300, 4))
    truth = features[:, 0] * features[:, 1] + 0.2 * features[:, 2]
    model = CostModel(objective, 1, generator)
    model.fit(features[:200], normalised(truth[:200]))
    scores, deviation = model.predict(features[200:])
    assert agreement(scores, truth[200:]) > 0.85
    assert not deviation.any()


def test_rows_of_different_tasks_are_not_ranked_against_each_other():
    # Within each task larger x is better; between tasks the one with the larger x is far worse.
    x = np.concatenate([np.linspace(0, 1, 40), np.linspace(1, 2, 40)])
    labels = np.concatenate([np.linspace(0.9, 1.0, 40), np.linspace(0.0, 0.1, 40)])
    together, apart = CostModel("rank", 1, np.random.default_rng(0)), CostModel("rank", 1, np.random.default_rng(0))
    together.fit(x[:, None], labels)
    apart.fit(x[:, None], labels, groups=np.repeat([0, 1], 40))
    assert agreement(apart.predict(x[:, None])[0], x) > 0.9 > 0.6 > agreement(together.predict(x[:, None])[0], x)


def test_a_bootstrapped_ensemble_is_surer_where_it_has_data():
    generator = np.random.default_rng(0)
    x = np.concatenate([generator.random(200), [3.0, 4.0, 5.0]])[:, None]
    model = CostModel("regression", 5, generator)
    model.fit(x, normalised(np.sin(5 * x[:, 0])))
    near, far = model.predict(np.linspace(0.1, 0.9, 50)[:, None])[1], model.predict(np.linspace(3, 5, 50)[:, None])[1]
    assert near.mean() < far.mean()


def test_expected_improvement_is_the_integral():
    for m, s, best in [(0.0, 1.0, 0.5), (1.0, 0.3, 0.2), (-2.0, 0.5, 1.0)]:
        normal = NormalDist(m, s)
        step = 1e-3
        integral = step * sum((y - best) * normal.pdf(y) for y in np.arange(best, best + 10, step))
        assert expected_improvement(np.array([m]), np.array([s]), best)[0] == pytest.approx(integral, rel=1e-3, abs=1e-9)


def test_the_first_batch_is_random_and_the_second_is_chosen():
    search, drawn = search_on(), create_search("Random", SearchSpace.from_json(MM1), seed=1)
    first = [search.ask(1)[0] for _ in range(64)]
    assert search.model_seconds == []
    for config in first:
        search.tell(config, planted(config))
    second = search.ask(64)
    assert len(search.model_seconds) == 1
    model, rest = second[:61], second[61:]  # 5 % at random
    baseline = mean(planted(config) for config in drawn.ask(500))
    assert mean(map(planted, model)) > 1.5 * baseline
    assert mean(map(planted, rest)) < mean(map(planted, model))


def test_epsilon_one_is_random_search():
    search = search_on(epsilon=1)
    run(search, planted, 64)
    baseline = mean(planted(config) for config in create_search("Random", search.space, seed=1).ask(500))
    assert mean(map(planted, search.ask(64))) < 1.5 * baseline


def test_the_chosen_batch_maximises_equation_3_as_greedily_as_defined():
    space = {letter: {"_type": "choice", "_value": list(range(6))} for letter in "ab"}
    search, rng = search_on(space, batch_size=4, diversity=0.7), random.Random(0)
    found = {(a, b): rng.random() for a in range(6) for b in range(6)}
    unit = float(np.std(list(found.values())))

    def objective(batch):
        covered = sum(len({point[j] for point in batch}) for j in range(2))
        return sum(found[point] for point in batch) + 0.7 * unit * covered

    picked = search._pick(found, 4)
    for n in range(1, 5):
        assert objective(picked[:n]) == pytest.approx(
            max(objective([*picked[: n - 1], p]) for p in found if p not in picked[: n - 1])
        )
    best = max(objective(batch) for batch in combinations(found, 4))
    assert objective(picked) >= (1 - 1 / math.e) * best


def test_without_diversity_the_best_candidates_are_chosen():
    search = search_on({letter: {"_type": "choice", "_value": [0, 1, 2]} for letter in "ab"}, diversity=0)
    found = {(a, b): float(3 * a + b) for a in range(3) for b in range(3)}
    assert search._pick(found, 3) == [(2, 2), (2, 1), (2, 0)]


def test_where_annealing_cannot_move_batches_are_random_and_the_model_is_fitted_once_for_each():
    numbers = {letter: {"_type": "randint", "_value": [0, 400]} for letter in "ab"}
    search = create_search("AutoTVM", SearchSpace.from_json(numbers, ["a == b"]), seed=0, batch_size=16, chains=32)
    run(search, lambda config: float(config["a"]), 128)
    assert len(search.model_seconds) == 7


def test_small_batches_have_their_share_of_random_ones():
    searches = [search_on(batch_size=4, epsilon=0.1, chains=4, steps=1, seed=seed) for seed in range(40)]
    drawn = []
    for search in searches:
        run(search, planted, 4)
        search._pick = lambda found, n: drawn.append(4 - n) or []
        search.ask(1)
    assert set(drawn) == {0, 1}
    assert abs(sum(drawn) - 16) < 5 * math.sqrt(40 * 0.4 * 0.6)  # 0.1 x 4 of a batch at random, in one of 40 batches as in all


def test_annealing_finds_the_best_of_a_known_score():
    search = search_on()
    found, steps = search._anneal(lambda points: np.array([planted(search.space.config(point)) for point in points]))
    best = max(found, key=found.get)
    assert planted(search.space.config(best)) == 1.0
    assert len(found) == 128 and steps <= 500


def test_chains_are_persistent():
    search = search_on(batch_size=16, chains=32)
    run(search, planted, 17)
    states = list(search._states)
    assert len(states) == 32
    starts = []
    search._anneal(lambda points: (starts.append(list(points)), np.zeros(len(points)))[1])
    assert starts[0] == states


@pytest.mark.parametrize(
    "class_args, objective",
    [
        ({}, "rank"),
        ({"acquisition": "mean"}, "rank"),
        ({"acquisition": "ei"}, "regression"),
        ({"acquisition": "ucb"}, "regression"),
        ({"acquisition": "ei", "objective": "rank"}, "rank"),
        ({"acquisition": "mean", "objective": "regression"}, "regression"),
    ],
)
def test_uncertainty_needs_the_regression_objective_unless_told_otherwise(class_args, objective):
    # As in section 6.1. What counts is what the model is trained for: by default and said, it proposes the same.
    proposals = []
    for given_args in (class_args, {**class_args, "objective": objective}):
        search = search_on(batch_size=8, chains=8, steps=20, **given_args)
        run(search, planted, 8)
        proposals.append(search.ask(8))
    assert proposals[0] == proposals[1]
    other = {"rank": "regression", "regression": "rank"}[objective]
    search = search_on(batch_size=8, chains=8, steps=20, **{**class_args, "objective": other})
    run(search, planted, 8)
    assert search.ask(8) != proposals[0]


@pytest.mark.parametrize("acquisition", ["ei", "ucb"])
@pytest.mark.parametrize("objective", ["rank", "regression"])
def test_uncertainty_aware_acquisition(acquisition, objective):
    search = search_on(batch_size=16, acquisition=acquisition, objective=objective, steps=60)
    values = [planted(search.space.config(point)) for point in (run(search, planted, 96), search.results)[1]]
    assert mean(values[16:]) > 1.5 * mean(values[:16])


def test_it_reports_how_long_its_model_takes(caplog):
    search = search_on(batch_size=16)
    with caplog.at_level(logging.INFO, logger="nni_tensor_tuners"):
        run(search, planted, 40)
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == len(search.model_seconds) == 2
    pattern = r"cost model of (\d+) results: fitted in ([\d.]+) s, annealed (\d+) steps in ([\d.]+) s"
    results, fitted, steps, annealed = zip(*(map(float, re.fullmatch(pattern, line).groups()) for line in said))
    assert results == (16, 32) and all(1 <= n <= 500 for n in steps)
    for seconds, *parts in zip(search.model_seconds, fitted, annealed):
        assert seconds == pytest.approx(sum(parts), abs=0.011)  # two numbers, rounded


def test_it_beats_random_search_on_a_planted_landscape():
    space = SearchSpace.from_json(MM1)
    ahead = [
        run(create_search("AutoTVM", space, seed=seed, batch_size=32), planted, 160)
        - run(create_search("Random", space, seed=seed), planted, 160)
        for seed in range(5)
    ]
    assert mean(ahead) > 3.75 * stdev(ahead) / math.sqrt(len(ahead))  # Student's t, 4 degrees of freedom, 1 %


def elsewhere():
    """What was measured of another shape, with the same tiles good."""
    shape = {"X": {"_type": "factor", "_value": [1024, 4]}, "Y": {"_type": "factor", "_value": [4096, 4]}, "K": MM1["K"]}
    space, rng = SearchSpace.from_json(shape), random.Random(0)
    configs = [space.sample(rng) for _ in range(400)]
    # The outermost factors take up the difference in shape; the tiles decide.
    tiles = {"X": [2, 8, 4], "Y": [1, 16, 4], "K": [4, 2]}
    return [(c, 0.8 ** sum(abs(math.log2(a / b)) for n in tiles for a, b in zip(c[n][1:], tiles[n]))) for c in configs]


def test_transfer_guides_the_first_batch():
    search = search_on()
    search.transfer([elsewhere(), [(config, None) for config, _ in elsewhere()[:20]]])
    first = search.ask(61)
    random_mean = mean(planted(config) for config in create_search("Random", search.space, seed=1).ask(500))
    assert mean(map(planted, first)) > 3 * random_mean
    for config in first:
        search.tell(config, planted(config))
    search.ask(3)
    assert mean(map(planted, search.ask(61))) > mean(map(planted, first))  # the local model adds to it


def test_transfer_gives_way_when_it_misleads():
    search = search_on(batch_size=16)
    search.transfer([[(config, 1 / fitness) for config, fitness in elsewhere()]])
    values = []
    for _ in range(160):
        (config,) = search.ask(1)
        values.append(planted(config))
        search.tell(config, planted(config))
    assert mean(values[-32:]) > 3 * mean(values[:16])


@pytest.mark.parametrize(
    "config, message",
    [
        ({**elsewhere()[0][0], "c": 1}, "transfer: expected the parameters X, Y, K, got"),
        ({"X": [1], "Y": [1]}, "transfer: expected the parameters X, Y, K, got"),
        (
            {"X": [8, 8], "Y": [4, 4, 4, 4], "K": [1, 1, 1]},
            "transfer: search space parameter 'X': expected a list of 4 factors, got",
        ),
    ],
)
def test_transfer_between_spaces_of_other_parameters_is_refused(config, message):
    with pytest.raises(ValueError, match=message):
        search_on().transfer([[(config, 1.0)]])


def test_transfer_reads_other_numbers_but_no_other_choices():
    search = search_on({"u": {"_type": "discrete", "_value": [0, 64]}, "c": {"_type": "choice", "_value": [4, 8]}})
    search.transfer([[({"u": 32, "c": 8}, 1.0), ({"u": 16, "c": 4}, 2.0)]])
    with pytest.raises(ValueError, match=r"transfer: search space parameter 'c': expected one of \[4, 8\], got 1"):
        search.transfer([[({"u": 32, "c": 1}, 1.0)]])
