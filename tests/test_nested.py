import json
import random
from collections import Counter
from itertools import product
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_search import SMALL

from nni_tensor_tuners import Exhausted, SearchSpace, create_search
from nni_tensor_tuners.search import SEARCHES
from nni_tensor_tuners.search.walkgp.covariance import KERNELS, WalkKernel
from nni_tensor_tuners.space.analysis import analyse

FACTOR = {"_type": "factor", "_value": [4, 2]}
UNROLL = {"_type": "discrete", "_value": [0, 16, 64]}
# X is in two branches and in a third one with other values; the choice of a loop order is nested once more.
LOOP = {
    "_type": "choice",
    "_value": [
        {"_name": "naive"},
        {"_name": "tiled", "X": FACTOR, "unroll": UNROLL},
        {
            "_name": "packed",
            "X": FACTOR,
            "order": {"_type": "choice", "_value": [{"_name": "rows"}, {"_name": "columns", "width": UNROLL}]},
        },
        {"_name": "wide", "X": {"_type": "factor", "_value": [6, 2]}},
    ],
}
SPACE = {"loop": LOOP, "vector": {"_type": "choice", "_value": [True, False]}}


def everything(json_space):
    """Every configuration of NNI search-space JSON, by its meaning: one value for every parameter, one branch for each choice."""
    return [dict(zip(json_space, values)) for values in product(*(values_of(spec) for spec in json_space.values()))]


def values_of(spec):
    if spec["_type"] == "choice" and any(isinstance(value, dict) and "_name" in value for value in spec["_value"]):
        return [
            {"_name": branch["_name"], **inner}
            for branch in spec["_value"]
            for inner in everything({key: value for key, value in branch.items() if key != "_name"})
        ]
    (parameter,) = SearchSpace.from_json({"p": spec}).parameters
    return [parameter.decode(parameter.unrank(i)) for i in range(parameter.size)]


def text(config):
    return json.dumps(config, sort_keys=True)


def nested(inner):
    """Nested choices whose branches have few parameters, of few names, so that branches share some."""
    branch = st.dictionaries(st.sampled_from("XYZ"), inner, max_size=2)
    return st.lists(branch, min_size=1, max_size=3).map(
        lambda branches: {"_type": "choice", "_value": [{"_name": f"b{i}", **branch} for i, branch in enumerate(branches)]}
    )


parameters = st.one_of(
    st.builds(lambda c, n: {"_type": "factor", "_value": [c, n]}, st.sampled_from([1, 4, 6]), st.integers(1, 2)),
    st.just(UNROLL),
    st.just({"_type": "choice", "_value": [True, None]}),
    st.just({"_type": "permutation", "_value": ["i", "j"]}),
)
specs = st.recursive(parameters, nested, max_leaves=5)
nested_spaces = st.dictionaries(st.sampled_from(["A", "B"]), nested(specs) | parameters, min_size=1).filter(
    lambda json_space: prod(len(values_of(spec)) for spec in json_space.values()) <= 300
)


@settings(deadline=None)
@given(nested_spaces, st.integers(0, 99))
def test_a_nested_space_is_every_branch_with_its_own_parameters(json_space, seed):
    space, expected = SearchSpace.from_json(json_space), everything(json_space)
    assert space.size == len(expected)
    listed = [space.config(point) for point in space.points(random.Random(seed))]
    assert sorted(map(text, listed)) == sorted(map(text, expected))  # each once
    for config in expected:
        assert space.config(space.point(config)) == config
        assert space.nearest_point(config) == space.point(config)
    assert SearchSpace.from_json(space.to_json()).to_json() == space.to_json()
    assert sorted(map(text, everything(space.to_json()))) == sorted(map(text, expected))


@settings(deadline=None, max_examples=50)
@given(nested_spaces, st.integers(0, 99))
def test_what_a_nested_space_draws_and_walks_to_is_in_it(json_space, seed):
    space, rng = SearchSpace.from_json(json_space), random.Random(seed)
    for _ in range(20):
        config = space.sample(rng)
        for other in [space.walk(config, 0.7, rng), *space.neighbours(config)]:
            assert space.contains(other)
            assert space.config(space.point(other)) == other


def test_neighbours_move_inside_the_branch_or_jump_and_keep_what_is_shared():
    space = SearchSpace.from_json({"loop": LOOP})
    config = {"loop": {"_name": "tiled", "X": [2, 2], "unroll": 16}}
    expected = [
        {"_name": "naive"},
        {"_name": "packed", "X": [2, 2], "order": {"_name": "rows"}},  # X is the same parameter there
        {"_name": "wide", "X": [6, 1]},  # and another one here: untiled
        {"_name": "tiled", "X": [4, 1], "unroll": 16},
        {"_name": "tiled", "X": [1, 4], "unroll": 16},
        {"_name": "tiled", "X": [2, 2], "unroll": 0},
        {"_name": "tiled", "X": [2, 2], "unroll": 64},
    ]
    assert sorted(text(each["loop"]) for each in space.neighbours(config)) == sorted(map(text, expected))


def test_sampling_draws_the_branch_first():
    space, rng = SearchSpace.from_json({"loop": LOOP}), random.Random(0)
    drawn = Counter(text(space.sample(rng)["loop"]) for _ in range(40_000))
    inside = {"naive": 1, "tiled": 9, "packed": None, "wide": 4}
    for config in everything({"loop": LOOP}):
        branch = config["loop"]["_name"]
        share = 1 / inside[branch] if inside[branch] else 1 / 3 / (2 if config["loop"]["order"]["_name"] == "rows" else 6)
        expected = 40_000 * share / 4
        assert abs(drawn[text(config["loop"])] - expected) < 5 * expected**0.5


def test_a_branch_with_few_legal_configurations_is_drawn_as_often_as_the_others():
    branches = [
        {"_name": name, **{key: {"_type": "factor", "_value": [4096, 3]}}} for name, key in (("rare", "X"), ("all", "Y"))
    ]
    space = SearchSpace.from_json(
        {"loop": {"_type": "choice", "_value": [*branches, {"_name": "none", "Z": UNROLL}]}},
        ["loop.X[0] == 64 and loop.X[1] == 64", "loop.Z < 0"],
    )
    drawn = Counter(space.sample(random.Random(seed))["loop"]["_name"] for seed in range(400))
    assert set(drawn) == {"rare", "all"} and abs(drawn["rare"] - 200) < 5 * 10


def test_the_walk_has_its_closed_form():
    """The walk of the branch, times the walks of what both branches have, times uniform draws of what only the new one has."""
    space, rng, q = SearchSpace.from_json({"loop": LOOP}), random.Random(1), 0.5
    point = space.point({"loop": {"_name": "tiled", "X": [2, 2], "unroll": 16}})
    trials = 60_000
    walked = Counter(space.walk_point(point, q, rng) for _ in range(trials))
    total = 0
    for other in space.points(rng):
        probability = 1.0
        for parameter, before, after in zip(space.parameters, point, other):
            if after is not None:
                probability *= parameter.walk_distribution(before, q)[after] if before is not None else 1 / parameter.size
        total += probability
        assert abs(walked[other] - trials * probability) < 5 * (trials * probability) ** 0.5
    assert total == pytest.approx(1)


def test_constraints_inside_a_branch():
    constraints = ["loop.X[0] * loop.unroll <= 32", "loop._name != 'packed' or loop.order._name == 'columns'"]
    space = SearchSpace.from_json(SPACE, constraints)

    def holds(config):
        loop = config["loop"]
        return loop.get("X", [0])[0] * loop.get("unroll", 0) <= 32 and (
            loop["_name"] != "packed" or loop["order"]["_name"] == "columns"
        )

    expected = sorted(text(config) for config in everything(SPACE) if holds(config))
    assert sorted(text(space.config(point)) for point in space.points(random.Random(0))) == expected
    assert analyse(space)["legal"] == len(expected)
    assert all(holds(space.sample(random.Random(seed))) for seed in range(50))
    free = SearchSpace.from_json(SPACE)
    for config in everything(SPACE):
        assert space.neighbours(config) == [other for other in free.neighbours(config) if holds(other)]


@pytest.mark.parametrize("name", SEARCHES)
@settings(max_examples=15, deadline=None)
@given(nested_spaces, st.integers(0, 99), st.integers(1, 4), st.data())
def test_every_search_exhausts_a_nested_space_without_repeats(name, json_space, seed, batch, data):
    space = SearchSpace.from_json(json_space)
    search = create_search(name, space, seed=seed, **SMALL.get(name, {}))
    proposed = []
    with pytest.raises(Exhausted):
        while True:
            configs = search.ask(batch)
            proposed += configs
            for config in configs:
                search.tell(config, data.draw(st.sampled_from([None, 0.5, 2.0])))
    assert sorted(map(text, proposed)) == sorted(map(text, everything(json_space)))


LARGE = {
    "loop": {
        "_type": "choice",
        "_value": [
            {"_name": "tiled", "X": {"_type": "factor", "_value": [1024, 4]}, "unroll": UNROLL},
            {"_name": "packed", "X": {"_type": "factor", "_value": [1024, 4]}, "width": {"_type": "factor", "_value": [64, 2]}},
            {"_name": "naive", "unroll": UNROLL},
        ],
    }
}


def packed_and_near(config):
    """1 at one configuration of the branch "packed", falling with the distance from it; other branches are worse."""
    loop = config["loop"]
    off = [np.log2(np.divide(loop["X"], [8, 4, 8, 4])) if "X" in loop else [5], np.log2(loop.get("width", [64])[-1] / 8)]
    return 0.8 ** (np.abs(off[0]).sum() / 2 + abs(off[1])) * (1 if loop["_name"] == "packed" else 0.5)


@pytest.mark.parametrize("name, trials", [("WalkGP", 60), ("OpEvo", 250), ("AutoTVM", 150), ("NoSE", 300), ("Genetic", 300)])
def test_a_planted_optimum_in_a_branch_is_found(name, trials):
    search = create_search(name, SearchSpace.from_json(LARGE), seed=0, **({"batch_size": 16} if name == "AutoTVM" else {}))
    for _ in range(trials):
        (config,) = search.ask(1)
        search.tell(config, packed_and_near(config))
    assert max(search.results.values()) >= 0.8


@settings(deadline=None, max_examples=60)
@given(nested_spaces, st.data())
def test_the_kernel_stays_positive_definite(json_space, data):
    space = SearchSpace.from_json(json_space)
    points = list(space.points(random.Random(0)))
    for name in KERNELS:
        kernel = WalkKernel(space, name)
        lengths = data.draw(st.lists(st.floats(-4, 4), min_size=len(kernel.axes), max_size=len(kernel.axes)))
        rows = kernel.rows(points).astype(float)
        k = kernel.between(rows, rows, kernel.table(lengths))
        assert np.allclose(np.diag(k), 1)
        assert np.linalg.eigvalsh(k).min() > -1e-9 * len(points)
        assert len(np.unique(rows, axis=0)) == len(points)


def test_a_parameter_that_is_not_active_counts_as_the_mean_over_its_levels():
    space = SearchSpace.from_json({"loop": LOOP})
    kernel = WalkKernel(space)
    axis = next(i for i, each in enumerate(kernel.axes) if each.optional and each.size == 3)
    table = np.exp(kernel.table(np.full(len(kernel.axes), -0.5))[kernel.blocks[axis], kernel.blocks[axis]])
    between, mean = table[:3, :3], np.full(3, 1 / 3)
    assert table[3, :3] == pytest.approx(between @ mean / np.sqrt(mean @ between @ mean))
    assert table[3, 3] == 1


@pytest.mark.parametrize("name", [name for name, entry in SEARCHES.items() if entry.transfers])
def test_transfer_between_nested_spaces(name):
    larger = json.loads(json.dumps(LARGE).replace("1024", "2048"))
    elsewhere, rng = SearchSpace.from_json(larger), random.Random(0)
    history = [(config, packed_and_near(config)) for config in (elsewhere.sample(rng) for _ in range(150))]
    search = create_search(name, SearchSpace.from_json(LARGE), seed=0, **SMALL.get(name, {}))
    search.transfer([history])
    asked = []
    for _ in range(8):
        (config,) = search.ask(1)
        asked.append(config)
        search.tell(config, packed_and_near(config))
    assert sum(config["loop"]["_name"] == "packed" for config in asked) >= 5  # a third by chance


BRANCH = {"_name": "a", "X": FACTOR}


@pytest.mark.parametrize(
    "branches, message",
    [
        ([BRANCH, "b"], "'loop': a nested choice needs a _name in every value, got 'b'"),
        ([BRANCH, {"X": FACTOR}], "'loop': a nested choice needs a _name in every value"),
        ([{"_name": 3}], "'loop': a nested choice needs a _name in every value"),
        ([BRANCH, BRANCH], "'loop._name': duplicate values"),
        ([{"_name": "a", "X.Y": FACTOR}], "'loop': 'X.Y' cannot be the name of a branch's parameter"),
        ([{"_name": "a", "X": {"_type": "factor", "_value": [0, 2]}}], "'loop.X'"),
        ([{"_name": "a", "X": 3}], "'loop.X': expected an object with _type and _value"),
    ],
)
def test_a_bad_nested_choice_is_named_in_one_line(branches, message):
    with pytest.raises(ValueError) as error:
        SearchSpace.from_json({"loop": {"_type": "choice", "_value": branches}})
    assert message in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    "config, message",
    [
        ({"_name": "tiled", "X": [2, 2]}, "expected the parameters loop._name, loop.X, loop.unroll, vector"),
        ({"_name": "naive", "X": [2, 2]}, "expected the parameters loop._name, vector"),
        ({"_name": "other"}, "'loop._name': expected one of ['naive', 'tiled', 'packed', 'wide'], got 'other'"),
        ({"_name": "wide", "X": [4, 1]}, "'loop.X'"),
        ({"X": [2, 2]}, "expected the parameters loop._name"),
        ("naive", "expected the parameters loop._name"),
        (None, "expected the parameters loop._name"),
    ],
)
def test_a_bad_nested_configuration_is_named_in_one_line(config, message):
    with pytest.raises(ValueError) as error:
        SearchSpace.from_json(SPACE).point({"loop": config, "vector": True})
    assert message in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    "constraint, message",
    [
        ("loop == 'naive'", "'loop' is no parameter; parameters: loop._name, loop.X"),
        ("loop.Y[0] < 2", "'loop.Y' is no parameter"),
        ("loop.X[7] < 2", "cannot be evaluated for {'loop.X'"),
        ("loop.order.width[0] < 2", "cannot be evaluated"),  # active in one branch of a branch only
    ],
)
def test_a_bad_constraint_on_a_nested_choice_is_named_in_one_line(constraint, message):
    with pytest.raises(ValueError) as error:
        SearchSpace.from_json(SPACE, [constraint])
    assert message in str(error.value) and "\n" not in str(error.value)
