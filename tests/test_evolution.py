"""NoSE and Genetic, and the operators they share."""

import math
import random
from collections import Counter
from statistics import mean

import numpy as np
import pytest
from scipy.spatial.distance import canberra as scipy_canberra
from test_search import MM1, planted, run

from nni_tensor_tuners import SearchSpace, create_search
from nni_tensor_tuners.search.nose import canberra, knn_estimate
from nni_tensor_tuners.search.variation import proportional, single_point_crossover, two_parents, uniform_mutation


def assert_frequency(count, n, probability):
    assert abs(count - n * probability) < 5 * math.sqrt(n * probability * (1 - probability)) + 1e-9


def test_parents_are_drawn_in_proportion_to_fitness_and_differ():
    rng, n, weights = random.Random(0), 20_000, proportional([3.0, 2.0, 1.0, -5.0])
    drawn = Counter(two_parents("abcd", weights, rng) for _ in range(n))
    share = {"a": 3 / 6, "b": 2 / 6, "c": 1 / 6}
    for first, p in share.items():
        for second, q in share.items():
            assert_frequency(drawn[first, second], n, 0.0 if first == second else p * q / (1 - p))


def test_with_one_positive_fitness_the_other_parent_is_any():
    drawn = {two_parents("abc", proportional([1.0, 0.0, 0.0]), random.Random(seed)) for seed in range(100)}
    assert drawn == {("a", "b"), ("a", "c")}


def test_single_point_crossover_cuts_anywhere_with_equal_probability():
    rng, n = random.Random(0), 9000
    drawn = Counter(single_point_crossover((1, 1, 1), (2, 2, 2), rng) for _ in range(n))
    for child in [(2, 2, 2), (1, 2, 2), (1, 1, 2)]:
        assert_frequency(drawn[child], n, 1 / 3)


def test_uniform_mutation_replaces_each_parameter_with_its_rate_by_any_other_value():
    space = SearchSpace.from_json({"a": {"_type": "choice", "_value": [0, 1, 2]}, "b": {"_type": "discrete", "_value": [5]}})
    rng, n = random.Random(0), 20_000
    drawn = Counter(uniform_mutation(space, (0, 5), 0.3, rng) for _ in range(n))
    for vertex, probability in [(0, 0.7), (1, 0.15), (2, 0.15)]:
        assert_frequency(drawn[vertex, 5], n, probability)


def test_canberra_distance_is_scipy_s():
    generator = np.random.default_rng(0)
    x, z = generator.integers(0, 4, 6).astype(float), generator.integers(-3, 4, (20, 6)).astype(float)
    assert canberra(x, z) == pytest.approx([scipy_canberra(x, row) for row in z])
    assert canberra(np.zeros(3), np.zeros((1, 3))) == [0.0]


def test_the_estimate_is_equations_1_to_3():
    known, values = np.array([[1.0], [3.0], [9.0], [1000.0]]), np.array([10.0, 20.0, 30.0, 0.0])
    distances = [abs(2 - x) / (2 + x) for x in (1, 3, 9)]
    weights = [1 / d for d in distances]
    expected = sum(w * y for w, y in zip(weights, values)) / sum(weights)
    assert knn_estimate(np.array([[2.0]]), known, values, 3) == pytest.approx([expected])
    assert knn_estimate(np.array([[3.0]]), known, values, 3) == pytest.approx([20.0])
    assert knn_estimate(np.array([[2.0]]), known, values, 99) == pytest.approx([expected], abs=3)


def test_nose_measures_the_elite_of_its_offspring():
    space = SearchSpace.from_json(MM1)
    search = create_search("NoSE", space, seed=0, population_size=20)
    run(search, planted, 20)
    elite = search._breed()
    assert len(elite) == 6  # 0.3 N
    known = np.array([search._coordinates(point) for point in search.results])
    estimates = knn_estimate(
        np.array([search._coordinates(point) for point in elite]), known, np.array(list(search.results.values())), 9
    )
    assert list(estimates) == sorted(estimates, reverse=True)
    assert mean(estimates) > mean(search.results.values())


def test_nose_counts_a_failure_as_zero():
    # Everything with u = 1 fails: the estimate steers the elite away from it, though u is inherited from neither parent.
    space = SearchSpace.from_json({**MM1, "u": {"_type": "choice", "_value": [0, 1]}})
    search = create_search("NoSE", space, seed=0)
    failures = []
    for _ in range(150):
        (config,) = search.ask(1)
        failures.append(config["u"])
        search.tell(config, None if config["u"] else 1.0)
    assert mean(failures[:16]) > 0.25 > mean(failures[50:])


@pytest.mark.parametrize("name", ["NoSE", "Genetic"])
def test_the_first_population_is_random_and_the_next_is_bred(name):
    search = create_search(name, SearchSpace.from_json(MM1), seed=0, population_size=8, mutation_rate=0.01)
    first = search.ask(8)
    rest = create_search("Random", SearchSpace.from_json(MM1), seed=0).ask(8)
    assert first == rest
    for i, config in enumerate(first):
        search.tell(config, 1.0 + i)
    for child in search.ask(2):
        inherited = sum(any(child[key] == parent[key] for parent in first) for key in child)
        assert inherited >= 2


@pytest.mark.parametrize("name", ["NoSE", "Genetic"])
def test_a_failed_trial_is_never_a_parent(name):
    # Values above 100 occur in failed trials only, and are never drawn by a mutation that is switched off.
    names = ["a", "b", "c"]
    space = SearchSpace.from_json({key: {"_type": "choice", "_value": list(range(200))} for key in names})
    search = create_search(name, space, seed=0, population_size=4, mutation_rate=0)
    for i in range(4):
        search.tell(dict.fromkeys(names, i), 1.0 + i)
        search.tell(dict.fromkeys(names, 100 + i), None)
    for config in search.ask(3):
        assert all(value < 100 for value in config.values())


@pytest.mark.parametrize("name", ["NoSE", "Genetic"])
def test_evolution_beats_random_search_on_a_planted_landscape(name):
    space = SearchSpace.from_json(MM1)
    evolved = [run(create_search(name, space, seed=seed), planted, 300) for seed in range(5)]
    drawn = [run(create_search("Random", space, seed=seed), planted, 300) for seed in range(5)]
    assert mean(evolved) > 1.3 * mean(drawn)
