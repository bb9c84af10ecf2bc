"""The task scheduler: which task of a network gets the next round, and what one task hands another."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from nni_tensor_tuners import SearchSpace, create_search
from nni_tensor_tuners.search.task_scheduler import GOLDEN


def space_of(*names, product=1024):
    tile = {"_type": "factor", "_value": [product, 4]}
    return SearchSpace.from_json({"task": {"_type": "choice", "_value": [{"_name": name, "X": tile} for name in names]}})


def scheduler(space, inner="Random", **class_args):
    return create_search("TaskScheduler", space, inner=inner, **class_args)


def task_of(config):
    return config["task"]["_name"]


def play(search, latency, count):
    """The task of each of ``count`` rounds; ``latency`` is a function of the task and of the number of its round, from 1."""
    chosen, had = [], Counter()
    for _ in range(count):
        names = set()
        for trial in range(search.round_size):
            (config,) = search.ask(1)
            names.add(task_of(config))
            had[task_of(config)] += trial == 0
            search.tell(config, 1 / latency(task_of(config), had[task_of(config)]))
        assert len(names) == 1
        chosen += names
    return chosen


def slopes(chosen, latency, counts, flop, alpha, beta, window):
    """|df/dt_i| of Ansor's gradient after these rounds, written down as its paper has it."""
    rounds = Counter(chosen)
    best = {name: [min(latency(name, k) for k in range(1, t + 1)) for t in range(1, rounds[name] + 1)] for name in counts}
    found = {}
    for name in counts:
        g, t = best[name][-1], rounds[name]
        backward = (g - best[name][t - 1 - window]) / window if t > window else 0.0
        forward = [-g / t]
        size = math.floor(math.log(flop[name] + 1, GOLDEN))
        speeds = [
            flop[other] / best[other][-1]
            for other in counts
            if other != name and other[0] == name[0] and math.floor(math.log(flop[other] + 1, GOLDEN)) == size
        ]
        if speeds:
            forward.append(beta * flop[name] / max(speeds) - g)
        found[name] = counts[name] * abs(alpha * backward + (1 - alpha) * min(forward))
    return found


TASKS = ["conv1", "conv2", "matmul", "pool"]
LATENCY = st.lists(st.floats(0.1, 10), min_size=20, max_size=20)


@settings(deadline=None, max_examples=40)
@given(
    st.fixed_dictionaries({name: LATENCY for name in TASKS}),
    st.fixed_dictionaries({name: st.integers(1, 12) for name in TASKS}),
    st.sampled_from([(0.2, 2.0, 3), (0.0, 1.0, 1), (0.7, 0.5, 2)]),
    st.sampled_from(["ucb", "gradient"]),
)
def test_every_choice_is_that_of_the_equations(latencies, counts, constants, selection):
    flop = {"conv1": 1000, "conv2": 1040, "matmul": 1000, "pool": 10}
    alpha, beta, window = constants
    names = dict(alpha=alpha, beta=beta, window=window, epsilon=0.0)
    search = scheduler(space_of(*TASKS), counts=counts, flop=flop, selection=selection, round_size=2, **names)

    def latency(name, round_):
        return latencies[name][round_ - 1]

    chosen = play(search, latency, 16)
    assert chosen[:4] == TASKS
    for number in range(4, 16):
        steep = slopes(chosen[:number], latency, counts, flop, alpha, beta, window)
        had = Counter(chosen[:number])
        if selection == "ucb":
            steep = {
                name: value / (max(steep.values()) or 1) + 0.3 * math.sqrt(2 * math.log(number) / had[name])
                for name, value in steep.items()
            }
        assert steep[chosen[number]] == pytest.approx(max(steep.values()))


def rates(saved):
    """Bühlmann's estimate of savings that fall as 1 / j, tasks varying by half the mean's square."""
    weights = np.array([np.sum(1 / np.arange(1, len(each) + 1)) for each in saved])
    own = np.array([np.sum(each) / weight for each, weight in zip(saved, weights)])
    pooled = np.average(own, weights=weights)
    chance = np.sum(np.concatenate(saved) ** 2) / weights.sum()
    own_share = 1 / (1 + chance / weights / (pooled**2 / 2))
    return own_share * own + (1 - own_share) * pooled


@settings(deadline=None, max_examples=40)
@given(
    st.fixed_dictionaries({name: st.lists(st.floats(0.5, 1), min_size=20, max_size=20, unique=True) for name in TASKS}),
    st.fixed_dictionaries({name: st.integers(1, 12) for name in TASKS}),
)
def test_the_next_trial_goes_where_it_is_expected_to_save_most(latencies, counts):
    search = scheduler(space_of(*TASKS), counts=counts)
    chosen = play(search, lambda name, trial: latencies[name][trial - 1], 20)
    assert chosen[: len(TASKS)] == TASKS
    for number in range(2 * len(TASKS), 20):
        had = Counter(chosen[:number])
        if min(had.values()) < 2:
            continue
        saved = []
        for name in TASKS:
            told = np.log(latencies[name][: had[name]])
            gains = np.minimum.accumulate(told)[:-1] - told[1:]
            saved.append(0.05 * norm.pdf(gains / 0.05) + gains * norm.cdf(gains / 0.05))
        expected = {
            name: counts[name] * min(latencies[name][: had[name]]) * rate / had[name] for name, rate in zip(TASKS, rates(saved))
        }
        assert expected[chosen[number]] == pytest.approx(max(expected.values()), rel=1e-6)


def test_trials_leave_a_task_that_gains_nothing_for_one_that_does():
    search = scheduler(space_of("done", "open"))
    found = Counter(
        play(search, lambda name, trial: 1.0 if trial == 1 else {"done": 3.0 + trial, "open": 0.98**trial}[name], 40)
    )
    assert found["open"] > 2 * found["done"]


def test_a_task_that_only_fails_gets_no_more_than_its_share():
    search = scheduler(space_of("broken", "works", "too"))
    found = Counter()
    for _ in range(60):
        (config,) = search.ask(1)
        found[task_of(config)] += 1
        search.tell(config, None if task_of(config) == "broken" else 1.0 + found[task_of(config)])
    assert 15 <= found["broken"] <= 20


def test_round_robin_and_random_exploration():
    search = scheduler(space_of(*TASKS), selection="round-robin", round_size=3)
    assert play(search, lambda name, round_: 1.0, 12) == TASKS * 3
    search = scheduler(space_of(*TASKS), selection="gradient", epsilon=1.0, round_size=1, counts={"pool": 1000})
    assert set(play(search, lambda name, round_: 1.0, 60)[4:]) == set(TASKS)


def test_most_trials_go_where_most_time_is_to_be_saved():
    search = scheduler(space_of("big", "small", "tiny"), counts={"big": 10}, round_size=4)
    found = Counter(play(search, lambda name, round_: {"big": 5.0, "small": 1.0, "tiny": 0.01}[name] / round_, 40))
    assert found["big"] > found["small"] >= found["tiny"] >= 1


def test_what_is_known_counts_as_rounds_and_a_failure_is_no_latency():
    search = scheduler(space_of("a", "b"), round_size=4)
    failed = {"task": {"_name": "a", "X": [1024, 1, 1, 1]}}
    search.tell(failed, None)
    (config,) = search.ask(1)
    assert task_of(config) == "b"  # the one of which nothing is known comes first
    assert failed not in [config for config in search.ask(20)]


def test_a_task_is_handed_the_best_configuration_of_one_like_it():
    space = SearchSpace.from_json(
        {
            "task": {
                "_type": "choice",
                "_value": [
                    {"_name": "conv1_relu", "X": {"_type": "factor", "_value": [64, 2]}},
                    {"_name": "conv2_relu", "X": {"_type": "factor", "_value": [128, 2]}},
                    {"_name": "pool", "X": {"_type": "factor", "_value": [64, 2]}},
                ],
            }
        }
    )
    search = scheduler(space, round_size=2, selection="round-robin")
    asked = {name: [] for name in ("conv1_relu", "conv2_relu", "pool")}
    for _ in range(6):
        for config in search.ask(1):
            asked[task_of(config)].append(config["task"]["X"])
            search.tell(config, 1.0 if config["task"]["X"][1] == 8 else 0.5)
    first, second = asked["conv1_relu"], asked["conv2_relu"]
    best = max(first, key=lambda x: x[1] == 8)
    assert second[0][1] in (best[1], 2 * best[1]) or second[0][0] == best[0]  # as near as 128 can have it
    assert len(asked["pool"]) == 2


@pytest.mark.parametrize(
    "class_args, complaint",
    [
        ({"inner": "TaskScheduler"}, "inner must be one of"),
        ({"selection": "best"}, "selection must be one of saving, ucb, gradient, round-robin"),
        ({"counts": {"a": 0}}, "counts must be positive numbers by task"),
        ({"counts": [1, 2]}, "counts must be positive numbers by task"),
        ({"defaults": {"a": -1}}, "defaults must be positive numbers by task"),
        ({"flop": {"c": 1}}, "flop: there is no task 'c' in the space; there are a, b"),
        ({"alpha": 2}, "alpha must be a number from 0 to 1"),
        ({"window": 0}, "window must be a number from 1"),
        ({"inner_args": {"initail": 3}, "inner": "WalkGP"}, "did you mean 'initial'"),
    ],
)
def test_bad_arguments_are_refused_in_one_line(class_args, complaint):
    with pytest.raises(ValueError, match=complaint):
        create_search("TaskScheduler", space_of("a", "b"), **class_args)


def test_trials_that_do_not_beat_a_task_s_default_schedule_save_nothing():
    """Both get faster alike, from a slow start on; one has a default schedule that none of its trials comes near."""

    def latency(name, k):
        return 10.0 / k

    search = scheduler(space_of("a", "b"), defaults={"a": 0.1})
    chosen = Counter(play(search, latency, 40))
    assert chosen["b"] > 3 * chosen["a"] >= 3
    even = Counter(play(scheduler(space_of("a", "b")), latency, 40))
    assert abs(even["a"] - even["b"]) <= 2


@pytest.mark.parametrize("inner", ["WalkGP", "OpEvo", "Bansor", "Random"])
def test_every_configuration_is_proposed_once(inner):
    space = space_of("a", "b", product=8)
    search = scheduler(space, inner)
    seen = []
    for _ in range(space.size):
        (config,) = search.ask(1)
        seen.append(str(config))
        search.tell(config, 1.0)
    assert len(set(seen)) == space.size
