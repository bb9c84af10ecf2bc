import math
import random
import tracemalloc
from collections import Counter
from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nni_tensor_tuners import SearchSpace
from nni_tensor_tuners.space import Choice, Discrete, Factor, Permutation

EXTENTS = [1, 2, 7, 8, 12, 30, 60, 64, 97]


def brute_force_factorisations(extent, parts):
    divisors = [d for d in range(1, extent + 1) if extent % d == 0]
    return {t for t in product(divisors, repeat=parts) if math.prod(t) == extent}


def are_adjacent_factorisations(u, v):
    """OpEvo section 3, word for word: one prime factor moved from one position to another."""
    changed = [i for i in range(len(u)) if u[i] != v[i]]
    if len(changed) != 2:
        return False
    (a, b), (c, d) = [(u[i], v[i]) for i in changed]
    big, small = max(a, b), min(a, b)
    if big % small or max(c, d) % min(c, d):
        return False
    z = big // small
    is_prime = z > 1 and all(z % p for p in range(2, z))
    return is_prime and max(c, d) // min(c, d) == z


@pytest.mark.parametrize("parts", [1, 2, 3, 4])
@pytest.mark.parametrize("extent", EXTENTS)
def test_factor_space_matches_brute_force(extent, parts):
    factor = Factor("X", extent, parts)
    expected = brute_force_factorisations(extent, parts)
    assert factor.size == len(expected)
    assert {factor.unrank(i) for i in range(factor.size)} == expected
    for vertex in expected:
        neighbours = factor.neighbours(vertex)
        assert len(neighbours) == len(set(neighbours))
        assert set(neighbours) == {other for other in expected if are_adjacent_factorisations(vertex, other)}


def test_permutation_matches_brute_force():
    order = Permutation("order", ["i", "j", "k", "l"])
    vertices = {order.unrank(i) for i in range(order.size)}
    assert vertices == set(permutations(range(4)))
    for u in vertices:
        two_cycles = {v for v in vertices if sum(a != b for a, b in zip(u, v)) == 2}
        assert set(order.neighbours(u)) == two_cycles
    assert order.decode(order.encode(["k", "i", "l", "j"])) == ["k", "i", "l", "j"]


def test_discrete_neighbours_are_the_next_numbers():
    unroll = Discrete("unroll", [512, 0, 16, 64.5])
    assert unroll.neighbours(0) == [16]
    assert unroll.neighbours(16) == [0, 64.5]
    assert unroll.neighbours(512) == [64.5]


def test_choice_neighbours_are_all_others_and_elements_may_be_anything():
    choice = Choice("c", [1, "1", True, None, {"a": [1]}])
    vertex = choice.encode({"a": [1]})
    assert {choice.encode(v) for v in [1, "1", True, None]} == set(choice.neighbours(vertex))
    assert choice.decode(choice.encode(True)) is True


PARAMETERS = [
    Factor("X", 8, 3),
    Factor("X", 12, 3),
    Factor("X", 60, 2),
    Permutation("P", ["a", "b", "c"]),
    Discrete("D", [1, 2, 3, 4]),
    Choice("C", ["a", "b", "c", "d"]),
    Factor("one", 1, 3),
    Discrete("one", [5]),
    Choice("one", ["only"]),
]


@pytest.mark.parametrize(
    "parameter",
    [Factor("X", 360, 3), Permutation("o", ["i", "j", "k", "l"]), Discrete("u", [64, 0, 512]), Choice("c", [0, 1, 2])],
    ids=lambda parameter: type(parameter).__name__,
)
def test_moves_are_the_edges_and_each_means_the_same_everywhere(parameter):
    vertices = [parameter.unrank(index) for index in range(parameter.size)]
    for vertex in vertices:
        moved = [parameter.move(vertex, index) for index in range(parameter.moves)]
        led_to = [other for other in moved if other is not None]
        assert sorted(led_to) == sorted(parameter.neighbours(vertex)) and len(set(led_to)) == len(led_to)
    # A move that leads somewhere undoes one that led here.
    assert all(vertex in parameter.neighbours(other) for vertex in vertices for other in parameter.neighbours(vertex))
    assert len({tuple(parameter.features(vertex)) for vertex in vertices}) == parameter.size


def test_the_origin_transforms_nothing():
    space = SearchSpace.from_json(
        {
            "X": {"_type": "factor", "_value": [12, 3]},
            "o": {"_type": "permutation", "_value": ["k", "j"]},
            "u": {"_type": "discrete", "_value": [64, 0]},
            "c": {"_type": "choice", "_value": ["plain", "fancy"]},
        }
    )
    assert space.config(space.starting_point(random.Random(0))) == {"X": [12, 1, 1], "o": ["k", "j"], "u": 0, "c": "plain"}


def test_no_legal_configuration_means_no_start():
    assert (
        SearchSpace.from_json({"X": {"_type": "factor", "_value": [12, 2]}}, ["X[0] > 12"]).starting_point(random.Random(0))
        is None
    )


def power_series(parameter, start, q, terms=400):
    """The walk's distribution summed step by step (OpEvo equation 4), without the matrix inverse under test."""
    probability, total = {start: 1.0}, Counter()
    for _ in range(terms):
        following = Counter()
        for vertex, p in probability.items():
            neighbours = parameter.neighbours(vertex)
            total[vertex] += p * (1 - q) if neighbours else p
            for other in neighbours:
                following[other] += p * q / len(neighbours)
        probability = following
    return total


@pytest.mark.parametrize("q", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("parameter", PARAMETERS, ids=lambda p: f"{type(p).__name__}-{p.size}")
def test_closed_form_of_the_walk_equals_its_power_series(parameter, q):
    start = parameter.unrank(parameter.size // 2)
    exact = parameter.walk_distribution(start, q)
    series = power_series(parameter, start, q)
    assert sum(exact.values()) == pytest.approx(1.0)
    assert len(exact) == parameter.size
    for vertex, p in exact.items():
        assert p == pytest.approx(series[vertex], abs=1e-9)


@pytest.mark.parametrize("make_rng", [random.Random, np.random.default_rng], ids=["random", "numpy"])
@pytest.mark.parametrize("parameter", PARAMETERS, ids=lambda p: f"{type(p).__name__}-{p.size}")
def test_sampled_walks_match_the_closed_form(parameter, make_rng):
    rng, q, n = make_rng(0), 0.5, 20_000
    start = parameter.unrank(0)
    exact = parameter.walk_distribution(start, q)
    counts = Counter(parameter.walk(start, q, rng) for _ in range(n))
    assert set(counts) <= set(exact)
    assert_frequencies(counts, exact, n)


@pytest.mark.parametrize("make_rng", [random.Random, np.random.default_rng], ids=["random", "numpy"])
@pytest.mark.parametrize("parameter", PARAMETERS, ids=lambda p: f"{type(p).__name__}-{p.size}")
def test_samples_are_uniform(parameter, make_rng):
    rng, n = make_rng(1), 20_000
    counts = Counter(parameter.sample(rng) for _ in range(n))
    assert_frequencies(counts, {parameter.unrank(i): 1 / parameter.size for i in range(parameter.size)}, n)


def assert_frequencies(counts, probabilities, n):
    """Every count within 5 standard deviations of its expectation."""
    for vertex, p in probabilities.items():
        assert abs(counts[vertex] - n * p) <= 5 * math.sqrt(n * p * (1 - p)) + 1


def test_walk_reaches_the_figure_of_the_paper():
    # OpEvo section 4.3: from (8, 1, 1) the vertices (2, 1, 4), (2, 2, 2), (2, 4, 1) are equally far, but (2, 2, 2) has the
    # larger degree and so the larger probability.
    p = Factor("X", 8, 3).walk_distribution((8, 1, 1), 0.5)
    assert p[(2, 2, 2)] > p[(2, 1, 4)] == pytest.approx(p[(2, 4, 1)])


def test_a_huge_factor_space_is_never_listed():
    tracemalloc.start()
    space = SearchSpace.from_json({"X": {"_type": "factor", "_value": [2**40, 6]}}, constraints=["X[0] <= X[1]"])
    config = space.sample(random.Random(0))
    walked = space.walk(config, 0.5, random.Random(1))
    next(space.points(random.Random(2)))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert space.size == math.comb(45, 5)
    assert math.prod(config["X"]) == math.prod(walked["X"]) == 2**40
    assert peak < 100_000  # bytes; its 1.2 million values would take a hundred million


MM = {"X": {"_type": "factor", "_value": [8, 3]}, "Y": {"_type": "factor", "_value": [6, 2]}}


def test_public_opevo_example_reads_unchanged():
    space = SearchSpace.from_json(
        {
            "K": {"_type": "factor", "_value": [1024, 3]},
            "unroll": {"_type": "discrete", "_value": [0, 125, 256]},
            "explicit": {"_type": "choice", "_value": [0, 1]},
        }
    )
    assert space.size == 66 * 3 * 2
    assert space.contains({"K": [16, 8, 8], "unroll": 125, "explicit": 1})
    assert SearchSpace.from_json(space.to_json()).to_json() == space.to_json()


def test_randint_means_what_it_means_in_nni():
    space = SearchSpace.from_json({"x": {"_type": "randint", "_value": [2, 5]}})
    assert {space.sample(random.Random(i))["x"] for i in range(50)} == {2, 3, 4}


def test_contains_wants_every_parameter_and_no_other():
    space = SearchSpace.from_json(MM, constraints=["X[0] * Y[0] <= 8"])
    assert space.contains({"X": [2, 2, 2], "Y": [3, 2]})
    assert not space.contains({"X": [2, 2, 2]})
    assert not space.contains({"X": [2, 2, 2], "Y": [3, 2], "Z": 1})
    assert not space.contains({"X": [2, 2, 3], "Y": [3, 2]})
    assert not space.contains({"X": [8, 1, 1], "Y": [3, 2]})
    assert not space.contains(None)


def test_neighbours_are_one_edge_away_and_legal():
    space = SearchSpace.from_json(MM, constraints=["X[0] * Y[0] <= 8"])
    config = {"X": [4, 2, 1], "Y": [2, 3]}
    expected = [
        {"X": list(x), "Y": list(y)}
        for x in brute_force_factorisations(8, 3)
        for y in brute_force_factorisations(6, 2)
        if x[0] * y[0] <= 8
        and (
            are_adjacent_factorisations(x, (4, 2, 1))
            and y == (2, 3)
            or x == (4, 2, 1)
            and are_adjacent_factorisations(y, (2, 3))
        )
    ]
    found = space.neighbours(config)
    assert len(found) == len(expected) and all(neighbour in found for neighbour in expected)


def test_constrained_samples_are_uniform_over_the_legal_ones():
    space = SearchSpace.from_json(MM, constraints=["X[0] * Y[0] == 4 or X[1] == 8"])
    legal = list(space.points(random.Random(0)))
    rng, n = random.Random(0), 8000
    counts = Counter(space.point(space.sample(rng)) for _ in range(n))
    assert_frequencies(counts, {point: 1 / len(legal) for point in legal}, n)


def test_one_legal_configuration_among_millions_is_found():
    space = SearchSpace.from_json(
        {"X": {"_type": "factor", "_value": [2**30, 5]}, "d": {"_type": "randint", "_value": [0, 100]}},
        constraints=["X[0] == 1073741824", "d == 42"],
    )
    assert space.sample(random.Random(0)) == {"X": [2**30, 1, 1, 1, 1], "d": 42}


def test_no_legal_configuration_is_an_error():
    space = SearchSpace.from_json(MM, constraints=["X[0] > 8"])
    with pytest.raises(ValueError, match="no configuration satisfies the constraints"):
        space.sample(random.Random(0))


spaces = st.fixed_dictionaries(
    {
        "X": st.builds(lambda c, n: {"_type": "factor", "_value": [c, n]}, st.integers(1, 24), st.integers(1, 3)),
        "D": st.builds(
            lambda v: {"_type": "discrete", "_value": v}, st.lists(st.integers(0, 9), min_size=1, max_size=4, unique=True)
        ),
        "P": st.builds(
            lambda v: {"_type": "permutation", "_value": v},
            st.lists(st.text("abc", min_size=1), min_size=1, max_size=3, unique=True),
        ),
    }
)
limits = st.one_of(st.just([]), st.builds(lambda a: [f"X[0] * (1 + D) <= {a}"], st.integers(1, 60)))


def test_a_factor_s_axes_are_tile_extents_and_an_edge_between_adjacent_positions_is_one_step_on_one_of_them():
    axes = Factor("X", 2**5 * 3, 4).axes()
    assert [(axis.size, axis.complete, axis.smooth) for axis in axes] == [(6, False, False)] * 3 + [(2, False, False)] * 3
    levels = [axis.level((4, 2, 4, 3)) for axis in axes]
    moved = [axis.level((4, 4, 2, 3)) for axis in axes]
    assert levels == [0, 2, 3, 1, 1, 1]
    assert sorted(abs(a - b) for a, b in zip(levels, moved)) == [0, 0, 0, 0, 0, 1]


def test_axes_of_the_other_types():
    (elements,) = Choice("c", ["a", "b", "c"]).axes()
    assert elements.complete and elements.size == 3 and [elements.level(vertex) for vertex in range(3)] == [0, 1, 2]
    assert [axis.level((2, 0, 1)) for axis in Permutation("o", ["i", "j", "k"]).axes()] == [1, 2, 0]
    (order,) = Discrete("t", [32, 64, 128]).axes()  # the powers of two say the same as the order
    assert order.smooth and [order.level(number) for number in (32, 64, 128)] == [0, 1, 2]
    _, powers = Discrete("t", [16, 32, 48, 64, 96, 128]).axes()
    assert powers.smooth and [powers.level(number) for number in (16, 48, 32, 96, 64, 128)] == [0, 0, 1, 1, 2, 3]
    assert len(Discrete("t", [16, 32, 48]).axes(divisibility=False)) == 1
    assert len(Discrete("t", [0, 0.5, 3]).axes()) == 1


@given(spaces, st.integers(0, 99))
def test_vertices_that_are_the_same_on_all_axes_are_the_same(json_space, seed):
    rng = random.Random(seed)
    for parameter in SearchSpace.from_json(json_space).parameters:
        seen = {}
        for vertex in (parameter.sample(rng) for _ in range(30)):
            levels = tuple(axis.level(vertex) for axis in parameter.axes())
            assert all(0 <= level < axis.size for level, axis in zip(levels, parameter.axes()))
            assert seen.setdefault(levels, vertex) == vertex


@given(spaces, st.integers(0, 99))
def test_a_value_of_this_space_stands_for_itself(json_space, seed):
    rng = random.Random(seed)
    for parameter in SearchSpace.from_json(json_space).parameters:
        vertex = parameter.sample(rng)
        assert parameter.nearest(parameter.decode(vertex)) == vertex


@pytest.mark.parametrize(
    "parameter, value, nearest",
    [
        (Discrete("u", [16, 64, 256]), 100, 64),
        (Discrete("u", [16, 64, 256]), 1, 16),
        (Discrete("u", [-4, 0, 4]), -1.0, 0),
        (Factor("X", 64, 3), [16, 4, 8], (2, 4, 8)),  # the tiles stay, the number of blocks gives
        (Factor("X", 64, 3), [1, 4, 128], (1, 1, 64)),  # as far as they fit
        (Factor("X", 64, 3), [9, 3, 3], (8, 2, 4)),  # 3 inside 9 are nearest to 4 inside 8
        (Choice("c", ["a", 1]), 1, 1),
        (Permutation("o", ["i", "j"]), ["j", "i"], (1, 0)),
    ],
)
def test_what_stands_for_a_value_of_another_space(parameter, value, nearest):
    assert parameter.nearest(value) == nearest


@pytest.mark.parametrize(
    "parameter, value, message",
    [
        (Discrete("u", [16, 64]), "many", "'u': expected a number, got 'many'"),
        (Discrete("u", [16, 64]), True, "'u': expected a number"),
        (Factor("X", 64, 3), [8, 8], "'X': expected a list of 3 factors"),
        (Factor("X", 64, 3), [8, 8, 0.5], "'X': expected positive integers"),
        (Choice("c", ["a", "b"]), "z", "'c': expected one of"),
        (Permutation("o", ["i", "j"]), ["i", "k"], "'o': expected one of"),
    ],
)
def test_what_nothing_stands_for_is_named(parameter, value, message):
    with pytest.raises(ValueError, match=message):
        parameter.nearest(value)


@settings(max_examples=60, deadline=None)
@given(spaces, limits, st.integers(0, 99))
def test_points_lists_every_legal_configuration_once(json_space, constraints, seed):
    space = SearchSpace.from_json(json_space, constraints)
    listed = list(space.points(random.Random(seed)))
    everything = product(*([p.unrank(i) for i in range(p.size)] for p in space.parameters))
    assert len(listed) == len(set(listed))
    assert set(listed) == {point for point in everything if space.is_legal(point)}


@settings(max_examples=60, deadline=None)
@given(spaces, limits, st.integers(0, 99), st.floats(0.05, 0.95))
def test_walks_stay_inside_the_constraints(json_space, constraints, seed, q):
    space = SearchSpace.from_json(json_space, constraints)
    rng = random.Random(seed)
    config = next(map(space.config, space.points(rng)), None)
    for _ in range(20 if config else 0):
        config = space.walk(config, q, rng)
        assert space.contains(config)


@pytest.mark.parametrize(
    "parameter, message",
    [
        ({"_type": "facto", "_value": [8, 2]}, r"'X': unknown _type 'facto'; allowed: factor, permutation"),
        ({"_type": ["factor"], "_value": [8, 2]}, r"'X': unknown _type"),
        ({"_value": [8, 2]}, r"'X': expected an object with _type and _value"),
        (7, r"'X': expected an object with _type and _value"),
        ({"_type": "factor", "_value": [0, 2]}, r"'X': a factor's product must be an integer >= 1, got 0"),
        ({"_type": "factor", "_value": [-8, 2]}, r"'X': a factor's product .* got -8"),
        ({"_type": "factor", "_value": [2.5, 2]}, r"'X': a factor's product .* got 2.5"),
        ({"_type": "factor", "_value": [8, 0]}, r"'X': a factor's number of parts must be an integer >= 1, got 0"),
        ({"_type": "factor", "_value": [8]}, r"'X': factor needs _value \[product, parts\]"),
        ({"_type": "choice", "_value": []}, r"'X': a choice needs a non-empty list"),
        ({"_type": "choice", "_value": [1, 2, 1]}, r"'X': duplicate values in \[1, 2, 1\]"),
        ({"_type": "discrete", "_value": []}, r"'X': a discrete parameter needs a non-empty list"),
        ({"_type": "discrete", "_value": [1, 1.0]}, r"'X': duplicate values"),
        ({"_type": "discrete", "_value": ["a"]}, r"'X': a discrete parameter's values must be finite numbers, got 'a'"),
        ({"_type": "permutation", "_value": []}, r"'X': a permutation needs a non-empty list"),
        ({"_type": "permutation", "_value": ["a", "a"]}, r"'X': duplicate values"),
        ({"_type": "randint", "_value": [5, 5]}, r"'X': randint needs integers lower < upper"),
    ],
)
def test_bad_parameters_are_named_in_one_line(parameter, message):
    with pytest.raises(ValueError, match=message) as caught:
        SearchSpace.from_json({"X": parameter})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("bad", [None, {}, [], "X"])
def test_a_space_is_a_non_empty_object(bad):
    with pytest.raises(ValueError, match="non-empty JSON object"):
        SearchSpace.from_json(bad)


@pytest.mark.parametrize(
    "config, message",
    [
        ({"X": [8, 1], "Y": [6, 1]}, "'X': expected a list of 3 factors"),
        ({"X": [8, 1, 1], "Y": [5, 1]}, "'Y': expected positive integers whose product is 6"),
        ({"X": [8, 1, 1]}, "expected the parameters X, Y, got X"),
    ],
)
def test_a_point_outside_the_space_is_named(config, message):
    with pytest.raises(ValueError, match=message):
        SearchSpace.from_json(MM).point(config)
