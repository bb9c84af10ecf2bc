import math
import random
from collections import Counter
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_space import limits, spaces

from nni_tensor_tuners import Exhausted, SearchSpace, create_search
from nni_tensor_tuners.search import SEARCHES
from nni_tensor_tuners.tasks import get_task

MM1 = {name: {"_type": "factor", "_value": value} for name, value in {"X": [512, 4], "Y": [1024, 4], "K": [1024, 3]}.items()}
TARGET = {"X": [8, 2, 8, 4], "Y": [16, 1, 16, 4], "K": [128, 4, 2]}
# Small enough for models and generations to come into play within a few dozen trials.
SMALL = {
    "AutoTVM": {"batch_size": 4, "chains": 8, "steps": 20},
    "NA2C": {"hidden_size": 8},
    "NoSE": {"population_size": 4},
    "Genetic": {"population_size": 4},
    "Bansor": {"round_size": 1},
}


def distance(config):
    """Prime factors that would have to move to reach TARGET."""
    return sum(abs(math.log2(a / b)) for name in TARGET for a, b in zip(config[name], TARGET[name])) / 2


def planted(config):
    """A landscape with its single optimum, 1.0, at TARGET."""
    return 0.8 ** distance(config)


def run(search, fitness, trials):
    """Ask and tell one by one; returns the best fitness."""
    for _ in range(trials):
        (config,) = search.ask(1)
        search.tell(config, fitness(config))
    return max(f for f in search.results.values() if f is not None)


@pytest.mark.parametrize("name", SEARCHES)
@settings(max_examples=50, deadline=None)
@given(spaces, limits, st.integers(0, 99), st.integers(1, 5), st.data())
def test_every_search_proposes_every_legal_configuration_exactly_once(name, json_space, constraints, seed, batch, data):
    space = SearchSpace.from_json(json_space, constraints)
    everything = product(*([p.unrank(i) for i in range(p.size)] for p in space.parameters))
    legal = {point for point in everything if space.is_legal(point)}
    search = create_search(name, space, seed=seed, **SMALL.get(name, {}))
    proposed, outstanding = [], []
    with pytest.raises(Exhausted):
        while True:
            configs = search.ask(batch)
            assert 1 <= len(configs) <= batch
            proposed += configs
            outstanding += configs
            while outstanding and data.draw(st.booleans()):  # results come late, out of order, and some trials fail
                config = outstanding.pop(data.draw(st.integers(0, len(outstanding) - 1)))
                search.tell(config, data.draw(st.sampled_from([None, float("nan"), 0.0, 0.5, 2.0])))
    assert len(proposed) == len(legal)
    assert {space.point(config) for config in proposed} == legal


@pytest.mark.parametrize("name", SEARCHES)
def test_the_same_seed_gives_the_same_search(name):
    def history(seed):
        search, configs = create_search(name, SearchSpace.from_json(MM1), seed=seed, **SMALL.get(name, {})), []
        for _ in range(15):
            for config in search.ask(4):
                configs.append(config)
                search.tell(config, planted(config))
        return configs

    assert history(3) == history(3)
    assert history(3) != history(4)


@pytest.mark.parametrize("name", SEARCHES)
def test_what_was_told_is_not_proposed(name):
    space = SearchSpace.from_json({"X": {"_type": "factor", "_value": [12, 3]}})
    search = create_search(name, space)
    known = [space.config(point) for point in list(space.points(random.Random(0)))[:10]]
    for config in known[:5]:
        search.tell(config, 1.0)
    for config in known[5:]:
        search.exclude(config)
    rest = search.ask(1000)
    assert len(rest) == space.size - 10
    assert not any(config in known for config in rest)


@pytest.mark.parametrize("name", SEARCHES)
def test_a_configuration_from_elsewhere_is_refused(name):
    search = create_search(name, SearchSpace.from_json(MM1))
    with pytest.raises(ValueError, match="expected the parameters X, Y, K"):
        search.tell({"X": [512, 1, 1, 1]}, 1.0)


@pytest.mark.parametrize("name", SEARCHES)
def test_rare_legal_configurations_are_still_drawn_at_random(name):
    # One in 100,000 is legal: too few for rejection, and 1,000 of them.
    json_space = {letter: {"_type": "randint", "_value": [0, 1000]} for letter in "abc"}
    space = SearchSpace.from_json(json_space, constraints=["a % 100 == 7", "b % 100 == 7", "c % 10 == 7"])
    configs = create_search(name, space, seed=0).ask(8)
    assert all(space.contains(config) for config in configs)
    assert all(len({config[letter] for config in configs}) >= 4 for letter in "abc")


def test_opevo_begins_with_random_configurations_then_breeds():
    space = SearchSpace.from_json(MM1)
    search = create_search("OpEvo", space, seed=0, parents_size=4, mutate_rate=0.1)
    first = search.ask(4)
    assert search.parents == []
    for i, config in enumerate(first):
        search.tell(config, 1.0 + i)
    assert [config for config, _ in search.parents] == first[::-1]
    # With a small q nearly every value of a child is one of its parents'.
    children = search.ask(8)
    inherited = [child[name] in [parent[name] for parent in first] for child in children for name in child]
    assert sum(inherited) > 0.7 * len(inherited)


def test_opevo_inherits_in_proportion_to_fitness():
    # Two parents that differ in all three parameters, and practically no mutation: a child is a mixed pattern of the two with
    # the probability of equation (2), given that it is neither parent.
    names = ["a", "b", "c"]
    space = SearchSpace.from_json({name: {"_type": "choice", "_value": list(range(50))} for name in names})
    fitness, n = {0: 3.0, 1: 1.0}, 6000
    weight = {parent: f / 4.0 for parent, f in fitness.items()}
    mixed = [pattern for pattern in product([0, 1], repeat=3) if 0 < sum(pattern) < 3]
    probability = {pattern: math.prod(weight[parent] for parent in pattern) for pattern in mixed}
    total = sum(probability.values())
    counts = Counter()
    for seed in range(n):
        search = create_search("OpEvo", space, seed=seed, parents_size=2, offspring_size=1, mutate_rate=1e-12)
        for parent, f in fitness.items():
            search.tell(dict.fromkeys(names, parent), f)
        pattern = tuple(search.ask(1)[0].values())
        if set(pattern) <= {0, 1}:  # else the recombined child was a parent itself, and a random one took its place
            counts[pattern] += 1
    drawn = sum(counts.values())
    assert set(counts) == set(mixed)
    for pattern, p in probability.items():
        expected = drawn * p / total
        assert abs(counts[pattern] - expected) < 5 * math.sqrt(expected)


def test_opevo_mutates_by_the_q_random_walk():
    # One parent and one parameter: children are the walk's distribution around the parent, given that they are not the parent.
    space = SearchSpace.from_json({"X": {"_type": "factor", "_value": [8, 3]}})
    exact = space.parameters[0].walk_distribution((8, 1, 1), 0.5)
    n, counts = 6000, Counter()
    for seed in range(n):
        search = create_search("OpEvo", space, seed=seed, parents_size=1, offspring_size=1)
        search.tell({"X": [8, 1, 1]}, 1.0)
        counts[tuple(search.ask(1)[0]["X"])] += 1
    moved = 1 - exact[(8, 1, 1)]
    for vertex, p in exact.items():
        expected = n * p / moved if vertex != (8, 1, 1) else 0
        assert abs(counts[vertex] - expected) <= 5 * math.sqrt(expected)


def test_a_failed_trial_is_never_a_parent():
    search = create_search("OpEvo", SearchSpace.from_json(MM1), seed=0)
    failed = []
    for i in range(200):
        (config,) = search.ask(1)
        fails = i % 3 == 0
        search.tell(config, None if fails else planted(config))
        failed += [config] * fails
        assert not any(parent in failed for parent, _ in search.parents)
    assert len(search.parents) == 8


def test_parents_are_the_best_even_when_results_are_told_again():
    search = create_search("OpEvo", SearchSpace.from_json(MM1), seed=0, parents_size=3)
    rng, latest = random.Random(0), {}
    for _ in range(60):
        if latest and rng.random() < 0.3:
            config = rng.choice([c for c, _ in latest.values()])
        else:
            (config,) = search.ask(1)
        fitness = rng.random()
        search.tell(config, fitness)
        latest[str(config)] = (config, fitness)
        expected = sorted((f for _, f in latest.values()), reverse=True)[:3]
        assert [f for _, f in search.parents] == expected


def test_a_result_stands_against_a_failure_told_later():
    search = create_search("OpEvo", SearchSpace.from_json(MM1))
    (config,) = search.ask(1)
    search.tell(config, None)
    search.tell(config, 2.0)
    search.tell(config, None)
    assert search.parents == [(config, 2.0)]


@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.parametrize("n", [1, 3])
def test_every_search_goes_on_when_everything_fails(name, n):
    # Also when the last outstanding trial is one that fails: nothing is left to wait for, and there must be a proposal.
    space = SearchSpace.from_json({"X": {"_type": "factor", "_value": [360, 3]}})
    search, proposed = create_search(name, space, **SMALL.get(name, {})), 0
    with pytest.raises(Exhausted):
        while True:
            for config in search.ask(n):
                proposed += 1
                search.tell(config, None)
    assert proposed == space.size


@pytest.mark.parametrize("name", SEARCHES)
def test_every_search_proposes_while_results_are_outstanding(name):
    search = create_search(name, SearchSpace.from_json(MM1), seed=0, **SMALL.get(name, {}))
    proposed = [str(config) for _ in range(40) for config in search.ask(1)]  # nothing is ever told
    assert len(set(proposed)) == 40


@pytest.mark.parametrize("name", SEARCHES)
def test_no_search_lists_the_values_of_a_huge_parameter(name):
    # 2^40 in 6 parts has 1,221,759 values, three of them 10^18 configurations.
    json_space = {letter: {"_type": "factor", "_value": [2**40, 6]} for letter in "XYZ"}
    search = create_search(name, SearchSpace.from_json(json_space), **SMALL.get(name, {}))
    for i in range(20):
        (config,) = search.ask(1)
        assert all(isinstance(factor, int) for factors in config.values() for factor in factors)
        assert all(math.prod(factors) == 2**40 for factors in config.values())
        search.tell(config, 1.0 + i)


@pytest.mark.parametrize("name", ["GBFS", "NA2C", "AutoTVM", "NoSE", "OpEvo"])
def test_no_search_is_drawn_to_failures_where_fitness_is_negative(name):
    # Half of the space fails; what succeeds has a negative fitness, which is still better than a failure.
    space = SearchSpace.from_json({**MM1, "u": {"_type": "choice", "_value": [0, 1]}})
    search, failed = create_search(name, space, seed=0, **SMALL.get(name, {})), []
    for _ in range(200):
        (config,) = search.ask(1)
        failed.append(config["u"])
        search.tell(config, None if config["u"] else planted(config) - 1000)
    assert sum(failed[100:]) < 40


@pytest.mark.parametrize("name", [name for name, entry in SEARCHES.items() if not entry.transfers])
def test_only_searches_with_a_model_of_the_space_take_a_transfer(name):
    with pytest.raises(ValueError, match=f"{name} takes no transfer"):
        create_search(name, SearchSpace.from_json(MM1)).transfer([[(TARGET, 1.0)]])


def test_opevo_finds_a_planted_optimum_that_random_search_does_not():
    space = SearchSpace.from_json(MM1)
    opevo = [run(create_search("OpEvo", space, seed=seed), planted, 600) for seed in range(5)]
    rand = [run(create_search("Random", space, seed=seed), planted, 600) for seed in range(5)]
    assert opevo == [1.0] * 5
    assert max(rand) < 0.8


def test_opevo_with_fitness_that_is_not_positive_still_searches():
    search = create_search("OpEvo", SearchSpace.from_json(MM1), seed=0)
    assert run(search, lambda config: -distance(config), 600) > -2


def test_the_paper_s_workloads():
    assert [get_task(f"mm{i}").flop for i in (1, 2, 3)] == [
        2 * 512 * 1024 * 1024,
        2 * 512 * 1024 * 4096,
        2 * 512 * 4096 * 1024,
    ]


@pytest.mark.parametrize(
    "name, class_args, message",
    [
        ("OpEvoo", {}, "unknown search 'OpEvoo'; allowed: WalkGP, OpEvo, GBFS, NA2C, AutoTVM, NoSE, Bansor, TaskScheduler, Genetic, Random"),
        ("OpEvo", {"parent_size": 8}, "OpEvo has no argument 'parent_size'; did you mean 'parents_size'"),
        ("Random", {"mutate_rate": 0.5}, "Random has no argument 'mutate_rate'; allowed: none"),
        ("OpEvo", {"parents_size": 0}, "parents_size must be an integer >= 1, got 0"),
        ("OpEvo", {"offspring_size": 2.5}, "offspring_size must be an integer >= 1, got 2.5"),
        ("OpEvo", {"mutate_rate": 1}, "mutate_rate must be a number between 0 and 1, both excluded, got 1"),
        ("OpEvo", {"mutate_rate": "high"}, "mutate_rate must be a number"),
        ("GBFS", {"num_samples": 0}, "num_samples must be an integer >= 1, got 0"),
        ("NA2C", {"hidden_size": 0}, "hidden_size must be an integer >= 1, got 0"),
        ("NA2C", {"lr": -1}, "lr must be a number from 0 to 1, got -1"),
        ("AutoTVM", {"objective": "ranking"}, "objective must be one of rank, regression, got 'ranking'"),
        ("AutoTVM", {"acquisition": "pi"}, "acquisition must be one of mean, ei, ucb, got 'pi'"),
        ("AutoTVM", {"epsilon": True}, "epsilon must be a number from 0 to 1, got True"),
        ("NoSE", {"population_size": 1}, "population_size must be an integer >= 2, got 1"),
        ("NoSE", {"elite_ratio": 2}, "elite_ratio must be a number from 0.01 to 1.5, got 2"),
        ("Bansor", {"inner": "Bansor"}, "inner must be one of WalkGP, .*, NoSE, Genetic, Random, got 'Bansor'"),
        ("Bansor", {"selection": "greedy"}, "selection must be one of ucb, random, got 'greedy'"),
        ("Bansor", {"exploration": -1}, "exploration must be a number from 0 to 100, got -1"),
        ("Bansor", {"round_size": 0}, "round_size must be an integer >= 1, got 0"),
        ("Bansor", {"inner_args": 8}, "inner_args must be WalkGP's arguments by name, got 8"),
        ("Bansor", {"inner_args": {"seed": 1}}, "inner_args: WalkGP has no argument 'seed'; allowed: initial"),
        ("Bansor", {"inner": "OpEvo", "inner_args": {"parents_size": 0}}, "parents_size must be an integer >= 1, got 0"),
        ("Genetic", {"mutation_rate": 1.5}, "mutation_rate must be a number from 0 to 1, got 1.5"),
        ("Random", {"seed": "x"}, "seed must be an integer, got 'x'"),
    ],
)
def test_bad_arguments_are_named_in_one_line(name, class_args, message):
    with pytest.raises(ValueError, match=message) as caught:
        create_search(name, SearchSpace.from_json(MM1), **class_args)
    assert "\n" not in str(caught.value)
