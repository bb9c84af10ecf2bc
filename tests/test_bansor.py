"""Bansor: which branch gets the next round, and what a search inside a branch sees."""

import json
import math
import random
from collections import Counter
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_nested import LARGE, LOOP, SPACE, nested, nested_spaces, packed_and_near, specs, text
from test_search import MM1, SMALL, planted

from nni_tensor_tuners import Exhausted, SearchSpace, create_search
from nni_tensor_tuners.frontends.nni.experiment import write_folder
from nni_tensor_tuners.search import SEARCHES
from nni_tensor_tuners.space import ListedSpace

INNER = [name for name in SEARCHES if name not in ("Bansor", "TaskScheduler")]
CONSTRAINTS = ["loop.X[0] * loop.unroll <= 32", "loop._name != 'packed' or loop.order._name == 'columns'", "vector or 1 > 2"]


def branches_of(*names, size=1000):
    values = [{"_name": name, "i": {"_type": "randint", "_value": [0, size]}} for name in names]
    return SearchSpace.from_json({"loop": {"_type": "choice", "_value": values}})


def bansor(space, inner="Random", **class_args):
    return create_search("Bansor", space, inner=inner, **class_args)


def branch_of(config):
    return config["loop"]["_name"]


def rounds(search, fitness, count):
    """The branch of each of ``count`` rounds; ``fitness`` is a function of the branch and of how many trials it has had."""
    chosen, had = [], Counter()
    for _ in range(count):
        configs = []
        for _ in range(search.round_size):
            (config,) = search.ask(1)
            name = branch_of(config)
            search.tell(config, fitness(name, had[name]))
            had[name] += 1
            configs.append(name)
        assert len(set(configs)) == 1
        chosen.append(configs[0])
    return "".join(chosen)


def test_rounds_go_to_the_highest_upper_confidence_bound():
    """r = 1, .8, .5, C = 0.3; after a, b and c once each (equation 3, natural logarithm):

    N = 3: sqrt(2 ln 3) = 1.482: a 1.445, b 1.245, c 0.945             -> a
    N = 4: sqrt(2 ln 4) = 1.665: a 1.353 (n = 2), b 1.300, c 1.000     -> a
    N = 5: sqrt(2 ln 5) = 1.794: a 1.311 (n = 3), b 1.338, c 1.038     -> b
    N = 6: sqrt(2 ln 6) = 1.893: a 1.328 (3),     b 1.202 (2), c 1.068 -> a
    N = 7: sqrt(2 ln 7) = 1.973: a 1.296 (4),     b 1.218 (2), c 1.092 -> a
    N = 8: sqrt(2 ln 8) = 2.039: a 1.274 (5),     b 1.233 (2), c 1.112 -> a
    N = 9: sqrt(2 ln 9) = 2.096: a 1.257 (6),     b 1.245 (2), c 1.129 -> a
    N = 10: 2.146:               a 1.243 (7),     b 1.255 (2), c 1.144 -> b
    """
    values = {"a": 10.0, "b": 8.0, "c": 5.0}
    search = bansor(branches_of("a", "b", "c"), round_size=3)
    # Only the best of a sketch counts (equation 4), whichever trial it was.
    assert rounds(search, lambda name, had: values[name] if had == 1 else 0.1, 11) == "abcaabaaaab"


@settings(deadline=None, max_examples=30)
@given(st.lists(st.floats(0.01, 100), min_size=2, max_size=5), st.sampled_from([0.0, 0.1, 0.3, 1.0]), st.sampled_from([1, 4]))
def test_every_choice_is_that_of_equations_3_and_4(best, exploration, round_size):
    names = "abcde"[: len(best)]
    search = bansor(branches_of(*names), exploration=exploration, round_size=round_size)
    chosen = rounds(search, lambda name, had: best[names.index(name)], 30)
    assert chosen.startswith(names)
    for number in range(len(names), 30):
        n = Counter(chosen[:number])
        gain = {name: exploration * math.sqrt(2 * math.log(number) / n[name]) for name in names}
        bound = {name: value / max(best) + gain[name] for name, value in zip(names, best)}
        assert bound[chosen[number]] == pytest.approx(max(bound.values()))


@pytest.mark.parametrize("inner", INNER)
def test_the_best_branch_gets_most_trials_with_ucb_and_its_share_at_random(inner):
    def trials_of_packed(selection):
        search = bansor(SearchSpace.from_json(LARGE), inner, selection=selection, round_size=2, inner_args=SMALL.get(inner, {}))
        configs = []
        for _ in range(60):
            configs += search.ask(1)
            search.tell(configs[-1], {"packed": 1.0, "tiled": 0.3, "naive": 0.1}[branch_of(configs[-1])])
        return Counter(map(branch_of, configs))["packed"]

    assert trials_of_packed("ucb") > 45
    assert 18 <= trials_of_packed("random") < 40  # "naive" has three configurations: between a third and half


def test_random_selection_is_uniform():
    search = bansor(branches_of("a", "b", "c"), selection="random", round_size=1)
    drawn = Counter(rounds(search, lambda name, had: {"a": 1.0, "b": 0.1, "c": 0.1}[name], 1500))
    assert all(abs(drawn[name] - 500) < 5 * math.sqrt(500) for name in "abc")


@pytest.mark.parametrize("value", [None, -1.0, 0.0])
def test_what_only_failed_has_no_reward_and_is_tried_now_and_then(value):
    chosen = rounds(bansor(branches_of("a", "b"), round_size=2), lambda name, had: 1.0 if name == "b" else value, 60)
    assert Counter(chosen) == {"a": 1, "b": 59}  # 0.3 sqrt(2 ln 60) < 1
    search = bansor(branches_of("a", "b"), round_size=2, exploration=1)
    assert 2 <= rounds(search, lambda name, had: 1.0 if name == "b" else value, 60).count("a") <= 6


@pytest.mark.parametrize("value", [None, -1.0, 0.0])
def test_where_no_reward_is_positive_all_take_turns(value):
    chosen = rounds(bansor(branches_of("a", "b", "c"), round_size=2), lambda name, had: value, 12)
    assert chosen == "abc" * 4


def test_a_branch_that_is_used_up_is_left_out_and_its_round_ends():
    values = [{"_name": "small"}, {"_name": "large", "i": {"_type": "randint", "_value": [0, 30]}}]
    search = bansor(SearchSpace.from_json({"loop": {"_type": "choice", "_value": values}}), round_size=4)
    names = []
    for _ in range(31):
        (config,) = search.ask(1)
        names.append(branch_of(config))
        search.tell(config, 1.0 if names[-1] == "small" else 0.1)
    assert names == ["small"] + ["large"] * 30
    with pytest.raises(Exhausted):
        search.ask(1)


def test_what_was_told_before_counts_as_rounds():
    search = bansor(branches_of("a", "b", "c"), round_size=4)
    for i in range(9):  # three rounds, the last one in part
        search.tell({"loop": {"_name": "a", "i": i}}, 1.0)
    search.tell({"loop": {"_name": "b", "i": 0}}, 0.9)
    # N = 5 after c's first: a 1 + .3 sqrt(2 ln 5 / 3) = 1.311, b .9 + .3 sqrt(2 ln 5) = 1.438, c .538.
    assert [branch_of(config) for config in search.ask(8)] == ["c"] * 4 + ["b"] * 4
    assert not {(0, "b"), *((i, "a") for i in range(9))} & {(c["loop"]["i"], branch_of(c)) for c in search.ask(40)}


def test_results_told_late_count_from_the_next_round_on():
    search = bansor(branches_of("a", "b"), round_size=3)
    first = search.ask(6)
    assert [branch_of(config) for config in first] == ["a"] * 3 + ["b"] * 3
    search.tell(first[5], 1.0)
    assert [branch_of(config) for config in search.ask(2)] == ["b"] * 2
    search.tell(first[0], 10.0)  # in the middle of a round
    assert [branch_of(config) for config in search.ask(2)] == ["b", "a"]


@pytest.mark.parametrize("inner", INNER)
@settings(max_examples=10, deadline=None)
@given(nested_spaces, st.integers(0, 99), st.sampled_from(["ucb", "random"]), st.integers(1, 5), st.data())
def test_every_inner_search_exhausts_a_space_whatever_is_told(inner, json_space, seed, selection, round_size, data):
    space = SearchSpace.from_json(json_space)
    search = bansor(space, inner, seed=seed, selection=selection, round_size=round_size, inner_args=SMALL.get(inner, {}))
    everything = {text(config): config for config in map(space.config, space.points(random.Random(seed)))}
    asked, from_elsewhere, outstanding = [], set(), []
    with pytest.raises(Exhausted):
        while True:
            if data.draw(st.booleans()):
                name = data.draw(st.sampled_from(sorted(everything)))
                from_elsewhere |= {name} - set(asked)
                if data.draw(st.booleans()):
                    search.tell(everything[name], data.draw(st.sampled_from([None, 0.5, -1.0])))
                else:
                    search.exclude(everything[name])
            configs = search.ask(3)
            assert not {text(config) for config in configs} & from_elsewhere
            asked += map(text, configs)
            outstanding += configs
            while outstanding and data.draw(st.booleans()):
                config = outstanding.pop(data.draw(st.integers(0, len(outstanding) - 1)))
                search.tell(config, data.draw(st.sampled_from([None, 0.5, 2.0])))
    assert sorted([*asked, *from_elsewhere]) == sorted(everything)


@pytest.mark.parametrize("inner", INNER)
def test_the_constraints_of_the_whole_space_hold_inside_a_branch(inner):
    space = SearchSpace.from_json(SPACE, CONSTRAINTS)
    search = bansor(space, inner, round_size=3, inner_args=SMALL.get(inner, {}))
    legal = {text(space.config(point)) for point in space.points(random.Random(0))}
    proposed = []
    with pytest.raises(Exhausted):
        while True:
            (config,) = search.ask(1)
            proposed.append(config)
            search.tell(config, 1.0 + len(proposed) % 3)
    assert sorted(map(text, proposed)) == sorted(legal)
    assert len({branch_of(config) for config in proposed}) == 4


@settings(deadline=None, max_examples=50)
@given(nested(specs), specs, st.integers(0, 99), st.sampled_from([[], ["A._name != 'b0'"], ["A.X._name == 'b0'"]]))
def test_restricted_spaces_share_out_the_whole_one(choice, other, seed, constraints):
    json_space = {"A": choice, "B": other}
    if "A.X._name" not in SearchSpace.from_json(json_space).names:
        constraints = [each for each in constraints if "X" not in each]
    space = SearchSpace.from_json(json_space, constraints)
    everything = [space.config(point) for point in space.points(random.Random(seed))]
    recorded = ListedSpace(space.parameters, map(space.point, everything[::2]))
    for whole, members in ((space, everything), (recorded, everything[::2])):
        for branch, value in enumerate(choice["_value"]):
            inside = whole.restricted(0, branch)
            listed = [inside.config(point) for point in inside.points(random.Random(seed))]
            expected = [config for config in members if config["A"]["_name"] == value["_name"]]
            assert sorted(map(text, listed)) == sorted(map(text, expected))
            assert all(whole.contains(config) for config in listed)
            assert (inside.random_point(random.Random(seed)) is None) == (not listed)


def test_a_recorded_space_is_searched_branch_by_branch():
    space = SearchSpace.from_json({"loop": LOOP})
    configs = [space.config(point) for point in space.points(random.Random(0))]
    kept = [config for config in configs if branch_of(config) != "wide"][::2]  # nothing of "wide" was recorded
    recorded = ListedSpace(space.parameters, list(map(space.point, kept)))
    for inner in INNER:
        search, proposed = bansor(recorded, inner, round_size=2, inner_args=SMALL.get(inner, {})), []
        with pytest.raises(Exhausted):
            while True:
                (config,) = search.ask(1)
                proposed.append(config)
                search.tell(config, 1.0)
        assert sorted(map(text, proposed)) == sorted(map(text, kept))


@pytest.mark.parametrize("inner", INNER)
@pytest.mark.parametrize("selection", ["ucb", "random"])
def test_the_same_seed_gives_the_same_search(inner, selection):
    def history(seed):
        search = bansor(
            SearchSpace.from_json(LARGE), inner, seed=seed, selection=selection, round_size=3, inner_args=SMALL.get(inner, {})
        )
        configs = []
        for _ in range(8):
            for config in search.ask(4):
                configs.append(config)
                search.tell(config, packed_and_near(config))
        return configs

    assert history(3) == history(3)
    assert history(3) != history(4)


@pytest.mark.parametrize("inner", INNER)
@pytest.mark.parametrize(
    "json_space", [MM1, {"loop": {"_type": "choice", "_value": [{"_name": "only", **MM1}]}}], ids=["flat", "one branch"]
)
def test_a_space_without_branches_to_choose_from_is_the_inner_search(inner, json_space):
    space, inner_args = SearchSpace.from_json(json_space), SMALL.get(inner, {})
    both = [create_search(inner, space, seed=5, **inner_args), bansor(space, inner, seed=5, inner_args=inner_args)]
    for _ in range(10):
        first, second = (search.ask(3) for search in both)
        assert first == second
        for search in both:
            for config in first:
                search.tell(config, planted(config.get("loop", config)))


def test_the_first_choice_at_the_top_with_several_branches_is_the_one():
    one = {"_type": "choice", "_value": [{"_name": "only", "i": {"_type": "randint", "_value": [0, 4]}}]}
    search = bansor(SearchSpace.from_json({"a": one, "vector": SPACE["vector"], "b": LOOP, "c": LOOP}))
    assert len(search.arms) == 4
    assert all(arm.space.parameters[3].name == "b._name" and arm.space.parameters[3].size == 1 for arm in search.arms)


@pytest.mark.parametrize("inner", [name for name in INNER if SEARCHES[name].transfers])
def test_a_branch_learns_from_what_was_measured_of_it(inner):
    elsewhere, rng = SearchSpace.from_json(json.loads(json.dumps(LARGE).replace("1024", "2048"))), random.Random(0)
    history = [(config, packed_and_near(config)) for config in (elsewhere.sample(rng) for _ in range(200))]
    of_tiled = [(config, fitness) for config, fitness in history if branch_of(config) == "tiled"]
    one_of_packed = [(config, fitness) for config, fitness in history if branch_of(config) == "packed"][:1]
    space, inner_args = SearchSpace.from_json(LARGE), SMALL.get(inner, {})

    def first(*histories):
        search = bansor(space, inner, inner_args=inner_args)
        if histories:
            search.transfer(list(histories))
        return [arm.ask(3) for arm in search.arms]

    by_itself = create_search(inner, space.restricted(0, 0), **inner_args)
    by_itself.transfer([of_tiled[:80], of_tiled[80:]])
    alone, taught = first(), first(of_tiled[:80] + one_of_packed, of_tiled[80:])
    assert taught[0] == by_itself.ask(3) != alone[0]
    assert taught[1:] == alone[1:]  # one success of "packed", nothing of "naive"
    for few in ([], one_of_packed):
        with pytest.raises(ValueError, match="transfer: fewer than two trials of any branch succeeded there"):
            first(few)
    with pytest.raises(ValueError, match="transfer: .*'loop._name': expected one of"):
        first([({"loop": {"_name": "other"}}, 1.0)])


def test_an_inner_search_that_takes_no_transfer_says_so():
    for space in (SearchSpace.from_json(LARGE), SearchSpace.from_json(MM1)):
        with pytest.raises(ValueError, match="OpEvo takes no transfer"):
            bansor(space, "OpEvo").transfer([[({"loop": {"_name": "naive", "unroll": 0}}, 1.0)]])


@pytest.mark.parametrize("space, written", [(SPACE, True), (MM1, False)])
def test_an_experiment_is_written_where_there_are_branches_to_choose_from(tmp_path, space, written):
    task = SimpleNamespace(operator="own", optimize_mode="maximize", search_space=lambda *_: space, constraints=lambda *_: [])
    device = SimpleNamespace(kind="cpu", rpc=None)
    paths = write_folder(tmp_path / "all", "own", "own", task, [device])
    assert ("bansor.yml" in [path.name for path in paths]) == written
    assert len(paths) == len(SEARCHES) - 1 + written  # the task scheduler is for networks
    named = write_folder(tmp_path / "named", "own", "own", task, [device], searches=["Bansor"])
    assert [path.name for path in named] == ["search_space.json", "bansor.yml"]
