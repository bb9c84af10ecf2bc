"""G-BFS and N-A2C, and every fault of the public example that the digest of the papers lists (numbers as there)."""

import math
import random
from statistics import mean

import numpy as np
import pytest
from test_search import MM1, TARGET, distance, planted

from nni_tensor_tuners import Exhausted, SearchSpace, create_search
from nni_tensor_tuners.search.actor_critic import ActorCritic
from nni_tensor_tuners.tasks import get_task
from nni_tensor_tuners.tasks.device import GENERIC, find_device

UNTILED = {"X": [512, 1, 1, 1], "Y": [1024, 1, 1, 1], "K": [1024, 1, 1]}
BOTH = ["GBFS", "NA2C"]
# 28 x 7 states.
SMALL_SPACE = {"X": {"_type": "factor", "_value": [64, 3]}, "u": {"_type": "discrete", "_value": [0, 1, 2, 4, 8, 16, 32]}}


def are_adjacent(space, a, b):
    return b in space.neighbours(a)


def tell_in_turn(search, fitness, trials):
    """Returns the configurations proposed, in order."""
    configs = []
    for _ in range(trials):
        (config,) = search.ask(1)
        configs.append(config)
        search.tell(config, fitness(config))
    return configs


@pytest.mark.parametrize("name", BOTH)
def test_the_first_configuration_is_the_one_without_multi_level_tiling(name):
    assert create_search(name, SearchSpace.from_json(MM1)).ask(1) == [UNTILED]


@pytest.mark.parametrize("name", BOTH)
def test_where_constraints_forbid_it_the_nearest_legal_one_comes_first(name):
    space = SearchSpace.from_json(MM1, ["X[2] * Y[2] >= 4", "K[2] == 2"])
    (first,) = create_search(name, space).ask(1)
    assert space.contains(first)
    assert first["K"] == [512, 1, 2] and first["X"][2] * first["Y"][2] == 4 and first["X"][1] == first["Y"][1] == 1


@pytest.mark.parametrize("name", BOTH)
def test_any_prime_and_any_type_of_parameter(name):
    json_space = {
        "X": {"_type": "factor", "_value": [3 * 5 * 7 * 7, 3]},
        "order": {"_type": "permutation", "_value": ["i", "j", "k"]},
        "unroll": {"_type": "discrete", "_value": [64, 0, 512]},
        "explicit": {"_type": "choice", "_value": ["yes", "no"]},
    }
    space = SearchSpace.from_json(json_space)
    search = create_search(name, space, seed=0)
    configs = tell_in_turn(search, lambda config: config["X"][2] + config["unroll"] / 512, 150)
    assert configs[0] == {"X": [735, 1, 1], "order": ["i", "j", "k"], "unroll": 0, "explicit": "yes"}
    assert max(config["X"][2] for config in configs) == 735


@pytest.mark.parametrize("name", BOTH)
def test_fault_1_no_state_is_proposed_twice(name):
    search = create_search(name, SearchSpace.from_json(SMALL_SPACE), seed=0)
    proposed = []
    with pytest.raises(Exhausted):
        for _ in range(512):
            proposed += tell_in_turn(search, lambda config: config["X"][1] + config["u"], 1)
    assert len(proposed) == len({str(config) for config in proposed}) == 196


def test_fault_2_an_expansion_that_yields_nothing_is_not_the_end():
    # A path (8,1) (4,2) (2,4) (1,8): the best state has no unseen neighbour, the next one has.
    search = create_search("GBFS", SearchSpace.from_json({"X": {"_type": "factor", "_value": [8, 2]}}))
    search.tell({"X": [8, 1]}, 3.0)
    search.tell({"X": [4, 2]}, 1.0)
    assert search.ask(1) == [{"X": [2, 4]}]


def test_fault_3_a_failed_trial_is_never_expanded():
    space = SearchSpace.from_json(MM1)
    search, successes = create_search("GBFS", space, seed=0), []
    for i in range(200):
        (config,) = search.ask(1)
        assert not successes or any(are_adjacent(space, config, other) for other in successes)
        failed = i % 3 == 1
        search.tell(config, None if failed else planted(config))
        successes += [config] * (not failed)


@pytest.mark.parametrize("name", BOTH)
def test_fault_4_a_last_outstanding_trial_that_fails_is_not_the_end(name):
    search = create_search(name, SearchSpace.from_json(MM1), seed=0)
    for _ in range(5):
        batch = search.ask(4)
        for config in batch[:3]:
            search.tell(config, planted(config))
        search.tell(batch[3], None)
    assert len(search.ask(4)) == 4


def test_fault_5_the_center_follows_the_best_also_in_small_units():
    # What `optimize_mode: minimize` makes of latencies in ms: 1 / ms, far below 1.
    space = SearchSpace.from_json(MM1)
    search = create_search("NA2C", space, seed=0)
    configs = tell_in_turn(search, lambda config: 1e-6 * planted(config), 120)
    best = max(configs, key=planted)
    assert best != UNTILED and space.config(search._center) == best


def test_fault_6_gradients_match_finite_differences():
    generator = np.random.default_rng(0)
    network = ActorCritic(5, 7, 4, 1e-3, generator)
    network.weights = {name: generator.normal(0, 0.5, w.shape) for name, w in network.weights.items()}
    n = 6
    allowed = generator.random((n, 4)) < 0.7
    actions = generator.integers(0, 4, n)
    allowed[np.arange(n), actions] = True
    states, advantages, ratios, rewards = generator.normal(size=(n, 5)), *generator.normal(size=(3, n))
    batch = (states, allowed, actions, advantages, ratios, rewards)
    _, gradients = network.loss_and_gradients(*batch)
    for name, weights in network.weights.items():
        for index in np.ndindex(weights.shape):
            kept = weights[index]
            losses = []
            for step in (1e-6, -1e-6):
                weights[index] = kept + step
                losses.append(network.loss_and_gradients(*batch)[0])
            weights[index] = kept
            assert gradients[name][index] == pytest.approx((losses[0] - losses[1]) / 2e-6, rel=1e-4, abs=1e-8), name


def test_fault_6_no_gradient_reaches_the_critic_through_the_advantage():
    network = ActorCritic(3, 8, 4, 1e-3, np.random.default_rng(0))
    states, allowed = np.ones((2, 3)), np.ones((2, 4), dtype=bool)
    value = network.forward(states, allowed)[1]
    rewards = value.copy()  # the critic is right: nothing to correct, however large the advantage
    _, gradients = network.loss_and_gradients(states, allowed, np.array([0, 1]), np.array([5.0, -5.0]), np.ones(2), rewards)
    assert not gradients["value"].any() and not gradients["value_bias"].any() and gradients["policy"].any()


def test_fault_6_the_policy_comes_to_prefer_what_pays():
    network = ActorCritic(3, 16, 4, 1e-2, np.random.default_rng(0))
    states, allowed = np.ones((4, 3)), np.array([[True, True, True, False]] * 4)
    actions, rewards = np.array([0, 1, 2, 2]), np.array([0.1, 1.0, 0.2, 0.2])
    for _ in range(200):
        policy, value = network.forward(states, allowed)
        ratios = np.ones(4)
        network.step(network.loss_and_gradients(states, allowed, actions, rewards - value, ratios, rewards)[1])
    policy, value = network.forward(states, allowed)
    assert policy[0, 1] > 0.8 and policy[0, 3] == 0 and policy[0].sum() == pytest.approx(1)
    assert value[0] == pytest.approx(rewards.mean(), abs=0.05)


def test_fault_6_results_are_credited_to_their_states_in_whatever_order_they_arrive():
    def fitness(config):  # no two alike: of equals, the one told first would be the center
        return planted(config) + 1e-6 * math.sin(sum(map(float, config["X"] + [7 * y for y in config["Y"]] + config["K"])))

    histories = []
    for order in (1, -1):
        search, proposed = create_search("NA2C", SearchSpace.from_json(MM1), seed=0), []
        for _ in range(12):
            batch = search.ask(6)
            proposed += batch
            for config in batch[::order]:
                search.tell(config, fitness(config))
        histories.append(proposed)
        for transition in search.memory:
            successor = search.space.config(transition.successor)
            assert search.results.get(transition.successor, fitness(successor)) == fitness(successor)
            assert are_adjacent(search.space, search.space.config(transition.state), successor)
            assert 0 < transition.probability <= 1
    assert histories[0] == histories[1]


def test_fault_6_the_arguments_are_used():
    search = create_search("NA2C", SearchSpace.from_json(MM1), hidden_size=17, lr=0.5, n_states=9)
    assert search.network.weights["hidden"].shape[1] == 17 and search.network.lr == 0.5
    search.tell(search.ask(1)[0], 1.0)
    search.ask(1)
    assert len(search._reached) == 8


def test_fault_6_a_center_without_neighbours_is_not_the_end():
    space = SearchSpace.from_json(MM1, ["X[1] == 1 or X[1] == 16", "Y[1] == K[1]", "Y[1] == 1 or Y[1] == 32"])
    isolated = create_search("NA2C", space, seed=0)
    assert len({str(config) for config in tell_in_turn(isolated, lambda config: 1.0, 50)}) == 50


def test_a_settled_policy_does_not_use_up_a_neighbourhood():
    # Nothing is better than the center, which has some thousand configurations within three moves.
    search = create_search("NA2C", SearchSpace.from_json(MM1), seed=0, lr=0.05, exploration=0)
    search.tell(TARGET, 1.0)
    configs = tell_in_turn(search, lambda config: planted(config) / 2, 300)
    assert max(map(distance, configs)) <= 3 and search._used_up is None


def test_a_used_up_neighbourhood_is_not_walked_again():
    space = SearchSpace.from_json({letter: {"_type": "discrete", "_value": list(range(12))} for letter in "abc"})
    search = create_search("NA2C", space, seed=0)
    tell_in_turn(search, lambda config: -sum(config.values()), 21)  # the start is the best; 19 others are within three moves
    remembered = len(search.memory)
    assert search._used_up == (0, 0, 0)
    tell_in_turn(search, lambda config: -sum(config.values()), 200)
    assert len(search.memory) == remembered


def test_a_round_stays_within_three_moves_of_the_center():
    space = SearchSpace.from_json(MM1)
    search = create_search("NA2C", space, seed=0, n_states=20)
    search.tell(UNTILED, 1.0)
    within = [UNTILED]
    for _ in range(3):
        within += [config for known in list(within) for config in space.neighbours(known) if config not in within]
    assert all(config in within for config in search.ask(20))


def test_learning_pays():
    # The planted optimum is far from the start, and the same kinds of moves lead towards it from everywhere.
    json_space = {name: {"_type": "factor", "_value": [4096, parts]} for name, parts in (("X", 4), ("Y", 4), ("K", 3))}
    target = {"X": [4, 4, 64, 4], "Y": [4, 8, 32, 4], "K": [64, 8, 8]}

    def fitness(config):
        return 0.8 ** (sum(abs(math.log2(a / b)) for name in target for a, b in zip(config[name], target[name])) / 2)

    def later_rounds(seed, **class_args):
        configs = tell_in_turn(create_search("NA2C", SearchSpace.from_json(json_space), seed=seed, **class_args), fitness, 200)
        return mean(map(fitness, configs[100:]))

    learned = mean(later_rounds(seed) for seed in range(20))
    assert learned > 1.1 * mean(later_rounds(seed, lr=0) for seed in range(20))


def test_all_neighbours_drawn_is_best_first_search():
    space = SearchSpace.from_json(SMALL_SPACE)
    search = create_search("GBFS", space, seed=0, num_samples=1000)

    def fitness(config):
        return math.sin(config["X"][0] * 1.7 + config["X"][1] * 0.3 + config["u"])  # no two alike

    (start,) = tell_in_turn(search, fitness, 1)
    measured, expanded = [start], []
    while len(measured) < space.size:
        best = max((config for config in measured if config not in expanded), key=fitness)
        expanded.append(best)
        fresh = [config for config in space.neighbours(best) if config not in measured]
        proposed = tell_in_turn(search, fitness, len(fresh))
        assert sorted(map(str, proposed)) == sorted(map(str, fresh))
        measured += proposed


def test_an_expansion_measures_at_most_rho_neighbours_of_the_best():
    space = SearchSpace.from_json(MM1)
    search = create_search("GBFS", space, seed=0)
    (start,) = tell_in_turn(search, planted, 1)
    first = tell_in_turn(search, planted, 5)
    assert all(are_adjacent(space, start, config) for config in first)
    # The start has been expanded: the next five surround the best of its five.
    best = max(first, key=planted)
    assert are_adjacent(space, best, tell_in_turn(search, planted, 1)[0])


def test_trials_side_by_side_search_as_trials_in_turn_do():
    # The five neighbours of the start do not depend on its result, so they can be measured along with it.
    space = SearchSpace.from_json(MM1)
    in_turn = tell_in_turn(create_search("GBFS", space, seed=3), planted, 6)
    assert create_search("GBFS", space, seed=3).ask(6) == in_turn


@pytest.mark.parametrize("name", BOTH)
def test_512_proposals_on_mm1_as_tuned_here(name):
    task = get_task("mm1")
    space = SearchSpace.from_json(task.search_space(GENERIC["cpu"]), task.constraints(find_device("cpu")))
    target = space.sample(random.Random(0))

    def fitness(config):
        return 0.9 ** sum(abs(math.log2(a / b)) for key in target for a, b in zip(config[key], target[key]))

    configs = tell_in_turn(create_search(name, space, seed=0), fitness, 512)
    assert len({str(config) for config in configs}) == 512 and all(map(space.contains, configs))
    best = [max(map(fitness, configs[:n])) for n in (8, 32, 512)]
    assert best[0] < best[1] < best[2]
