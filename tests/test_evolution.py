"""NoSE and Genetic, and the operators they share."""

import math
import random
from collections import Counter
from statistics import mean, stdev

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import canberra as scipy_canberra
from test_search import MM1, planted, run
from test_space import limits, spaces

from nni_tensor_tuners import SearchSpace, create_search
from nni_tensor_tuners.search import nose, variation
from nni_tensor_tuners.search.nose import canberra, knn_estimate
from nni_tensor_tuners.search.variation import offspring, proportional, single_point_crossover, two_parents, uniform_mutation
from nni_tensor_tuners.tasks import get_task
from nni_tensor_tuners.tasks.device import GENERIC


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


def breed_one(space, parents, rate, seen, rng, monkeypatch):
    """One child, and what crossover had made of its parents before it was mutated."""
    crossed = []

    def crossover(a, b, rng):
        crossed.append(single_point_crossover(a, b, rng))
        return crossed[-1]

    monkeypatch.setattr(variation, "single_point_crossover", crossover)
    (child,) = offspring(space, parents, rate, 1, seen, rng)
    return child, crossed[-1]


def test_a_child_keeps_what_crossover_gave_it_with_one_minus_the_mutation_rate(monkeypatch):
    space = SearchSpace.from_json({letter: {"_type": "choice", "_value": [0, 1, 2, 3]} for letter in "abcde"})
    rng, n, rate = random.Random(0), 4000, 0.3
    parents = {(0, 0, 0, 0, 0): 1.0, (1, 1, 1, 1, 1): 2.0}
    kept = Counter()
    for _ in range(n):
        child, crossed = breed_one(space, parents, rate, (), rng, monkeypatch)
        kept[sum(a == b for a, b in zip(child, crossed))] += 1
    for left in range(6):
        assert_frequency(kept[left], n, math.comb(5, left) * (1 - rate) ** left * rate ** (5 - left))


def test_a_child_that_breaks_a_constraint_is_bred_anew(monkeypatch):
    # Whatever else a child has, it is legal if its "u" and "v" are kept, with (1 - rate)^2: two of three are bred again. The
    # other parameters know nothing of it, so they are kept as in a child that was legal at once, however often it took.
    space = SearchSpace.from_json({letter: {"_type": "choice", "_value": [0, 1, 2, 3]} for letter in "abuv"}, ["u + v == 0"])
    rng, n, rate = random.Random(0), 4000, 0.45
    parents = {(0, 0, 0, 0): 1.0, (1, 1, 0, 0): 2.0}
    kept = Counter()
    for _ in range(n):
        child, crossed = breed_one(space, parents, rate, (), rng, monkeypatch)
        kept[sum(a == b for a, b in zip(child[:2], crossed[:2]))] += 1
    for left in range(3):
        assert_frequency(kept[left], n, math.comb(2, left) * (1 - rate) ** left * rate ** (2 - left))


def test_a_child_that_was_seen_is_bred_anew():
    # With (0, 0) and (1, 1) as parents and no mutation there are four children: cut before the first parameter it is one of
    # the parents, which have been seen; cut between the two it begins like the one and ends like the other.
    space = SearchSpace.from_json({letter: {"_type": "choice", "_value": [0, 1]} for letter in "ab"})
    parents, n = {(0, 0): 1.0, (1, 1): 1.0}, 4000
    drawn = Counter(offspring(space, parents, 0, 1, set(parents), random.Random(seed))[0] for seed in range(n))
    for child in [(0, 1), (1, 0)]:
        assert_frequency(drawn[child], n, 1 / 2)
    assert offspring(space, parents, 0, 1, {*parents, *drawn}, random.Random(0)) == []  # given up


def test_on_c12_a_child_keeps_at_least_its_share(monkeypatch):
    # ResNet-18's C12 with CUDA constraints, NoSE's rate: 0.54 when illegal children were mutated again. Children that changed
    # little are legal more often than others, so it is rather more than 1 - p.
    task, rng = get_task("resnet18-c12"), random.Random(0)
    space = SearchSpace.from_json(task.search_space(GENERIC["cuda"]), task.constraints(GENERIC["cuda"]))
    movable = [i for i, parameter in enumerate(space.parameters) if parameter.size > 1]
    parents = {space.random_point(rng): rng.random() for _ in range(16)}
    shares = []
    for _ in range(500):
        child, crossed = breed_one(space, parents, 0.3, parents, rng, monkeypatch)
        assert space.is_legal(child)
        shares.append(mean(child[i] == crossed[i] for i in movable))
    assert 0.7 < mean(shares) < 0.8


@settings(max_examples=50, deadline=None)
@given(spaces, limits, st.integers(0, 99), st.sampled_from([0.0, 0.3, 1.0]), st.data())
def test_offspring_are_legal_new_and_distinct(json_space, constraints, seed, rate, data):
    space, rng = SearchSpace.from_json(json_space, constraints), random.Random(seed)
    legal = list(space.points(rng))
    assume(len(legal) >= 2)
    parents = {point: rng.random() for point in legal[: data.draw(st.integers(2, len(legal)))]}
    seen = set(data.draw(st.lists(st.sampled_from(legal))))
    children = offspring(space, parents, rate, 5, seen, rng)
    assert len(set(children)) == len(children) <= 5
    assert set(children) <= set(legal) - seen
    if rate == 0:  # the beginning of one parent, the end of another
        cuts = range(len(space.parameters))
        crossed = {a[:cut] + b[cut:] for a in parents for b in parents if a != b for cut in cuts}
        assert set(children) <= crossed


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
    weights.append(1 / (998 / 1002))
    everyone = sum(w * y for w, y in zip(weights, values)) / sum(weights)
    assert knn_estimate(np.array([[2.0]]), known, values, 99) == pytest.approx([everyone])


def test_nose_measures_the_elite_of_its_offspring(monkeypatch):
    space, bred = SearchSpace.from_json(MM1), []
    monkeypatch.setattr(nose, "offspring", lambda *args: bred.extend(offspring(*args)) or bred)
    search = create_search("NoSE", space, seed=0, population_size=20)
    run(search, planted, 20)
    elite = [space.point(config) for config in search.ask(6)]  # 0.3 N
    known = np.array([space.features(point) for point in search.results])
    values = np.array(list(search.results.values()))
    estimates = knn_estimate(np.array([space.features(point) for point in bred]), known, values, 9)
    assert len(bred) == 30  # 1.5 N
    assert elite == [bred[i] for i in np.argsort(-estimates, kind="stable")[:6]]


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
    search = create_search(name, SearchSpace.from_json(MM1), seed=0, population_size=8, mutation_rate=0)
    first = search.ask(8)
    rest = create_search("Random", SearchSpace.from_json(MM1), seed=0).ask(8)
    assert first == rest
    for i, config in enumerate(first):
        search.tell(config, 1.0 + i)
    crossed = [dict(zip(a, [*a.values()][:cut] + [*b.values()][cut:])) for a in first for b in first for cut in range(3)]
    assert all(child in crossed and child not in first for child in search.ask(2))


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
    ahead = [
        run(create_search(name, space, seed=seed), planted, 300) - run(create_search("Random", space, seed=seed), planted, 300)
        for seed in range(10)
    ]
    assert mean(ahead) > 2.82 * stdev(ahead) / math.sqrt(len(ahead))  # Student's t, 9 degrees of freedom, 1 %
