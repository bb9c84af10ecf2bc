"""Our searches inside Kernel Tuner, on caches that it replays in simulation mode and on C that it compiles."""

import itertools
import json
import math

import numpy as np
import pytest

from nni_tensor_tuners import create_search
from nni_tensor_tuners.search import SEARCHES
from nni_tensor_tuners.space import Choice, Discrete

kernel_tuner = pytest.importorskip("kernel_tuner")
MaxProdConstraint = pytest.importorskip("constraint").MaxProdConstraint
pytestmark = pytest.mark.filterwarnings("ignore:None of the tunable parameters", "ignore:Kernel .* lists do not match")

PARAMETERS = {
    "block_size_x": [16, 32, 64, 128, 256],
    "tile": [1, 2, 4, 8],
    "scale": [0.5, 1.0, 1.5],
    "vector": ["float", "float2", "float4"],
    "precision": [32],  # nothing to search
}
OPTIMUM = {"block_size_x": 64, "tile": 4, "scale": 1.0, "vector": "float2", "precision": 32}


def time_of(config):
    """Milliseconds; each parameter off its optimum doubles them, or more."""
    steps = [abs(math.log2(config["block_size_x"] / 64)), abs(math.log2(config["tile"] / 4)), 2 * abs(config["scale"] - 1.0)]
    return 2.0 ** (sum(steps) + (config["vector"] != "float2"))


def simulate(tmp_path, strategy, options, measured=time_of, restrictions=None, parameters=PARAMETERS, **others):
    """The results and the environment of ``tune_kernel`` on a cache of all configurations, ``measured`` giving time or error."""
    configs = [dict(zip(parameters, values)) for values in itertools.product(*parameters.values())]
    took = {"compile_time": 1e6, "verification_time": 0, "benchmark_time": 0}
    content = {
        "device_name": "none",
        "kernel_name": "kernel",
        "problem_size": [1],
        "tune_params_keys": list(parameters),
        "tune_params": parameters,
        "cache": {",".join(map(str, config.values())): {**config, "time": measured(config), **took} for config in configs},
    }
    path = tmp_path / "cache.json"
    path.write_text(json.dumps(content))
    return kernel_tuner.tune_kernel(
        "kernel",
        "void kernel() {}",
        1,
        [],
        parameters,
        restrictions=restrictions,
        lang="C",
        strategy=strategy,
        strategy_options=options,
        cache=str(path),
        simulation_mode=True,
        quiet=True,
        **others,
    )


def keys(results, names=PARAMETERS):
    return [tuple(result[name] for name in names) for result in results]


def strategy(*args, **class_args):
    from nni_tensor_tuners.frontends.kernel_tuner import strategy

    return strategy(*args, **class_args)


@pytest.mark.parametrize("search, evaluations", [("WalkGP", 40), ("OpEvo", 180), ("Random", 180)])
def test_a_search_finds_the_optimum_and_evaluates_nothing_twice(tmp_path, search, evaluations):
    results, env = simulate(tmp_path, strategy(search), {"max_fevals": evaluations})
    assert len(results) == len(set(keys(results))) == evaluations
    assert {name: env["best_config"][name] for name in OPTIMUM} == OPTIMUM


@pytest.mark.parametrize("search", SEARCHES)
def test_every_search_keeps_to_the_budget(tmp_path, search):
    results, _ = simulate(tmp_path, strategy(search), {"max_fevals": 20})
    assert len(results) == len(set(keys(results))) == 20


def test_it_ends_when_nothing_is_left(tmp_path):
    results, _ = simulate(tmp_path, strategy("OpEvo"), {"max_fevals": 1000})
    assert len(set(keys(results))) == len(results) == math.prod(map(len, PARAMETERS.values()))


def narrow(p):
    return p["block_size_x"] * p["tile"] <= 128


@pytest.mark.parametrize("restrictions", [["block_size_x * tile <= 128"], narrow, [MaxProdConstraint(128)]])
def test_restrictions_hold_however_they_are_written(tmp_path, restrictions):
    parameters = {"block_size_x": [16, 32, 64, 128, 256], "tile": [1, 2, 4, 8]}
    legal = [config for config in itertools.product(*parameters.values()) if math.prod(config) <= 128]
    results, _ = simulate(
        tmp_path,
        strategy("OpEvo", parents_size=4),
        {"max_fevals": 1000},
        lambda config: 1 / config["tile"],
        restrictions,
        parameters,
    )
    assert sorted(keys(results, parameters)) == sorted(legal)


def fails(config):
    return config["vector"] == "float4" or config["tile"] == 8


def test_failures_are_told_and_survived(tmp_path):
    from kernel_tuner.searchspace import Searchspace

    from nni_tensor_tuners.frontends.kernel_tuner import space_of

    results, env = simulate(
        tmp_path,
        strategy("WalkGP", seed=1),
        {"max_fevals": 40},
        lambda config: "RuntimeFailedConfig" if fails(config) else time_of(config),
    )
    assert {name: env["best_config"][name] for name in OPTIMUM} == OPTIMUM
    # The search by itself, which is told None for what fails, proposes the same.
    search, proposed = create_search("WalkGP", space_of(Searchspace(PARAMETERS, [], 1e9))[0], seed=1), []
    while len(proposed) < 40:
        (config,) = search.ask(1)
        proposed.append({**config, "precision": 32})
        search.tell(config, None if fails(config) else 1 / time_of(config))
    assert keys(results) == keys(proposed)
    assert [fails(config) for config in proposed] == ["__error__" in result for result in results]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_no_number_is_a_failure(tmp_path, value):
    results, _ = simulate(
        tmp_path, strategy("WalkGP"), {"max_fevals": 30}, lambda config: value if config["tile"] == 8 else time_of(config)
    )
    assert len(results) == 30
    assert min(result["time"] for result in results if result["tile"] != 8) == 1.0


def test_the_time_limit_ends_it(tmp_path):
    # An evaluation counts as 1000 s, so that the seconds which the search takes here do not matter.
    results, _ = simulate(tmp_path, strategy("WalkGP"), {"time_limit": 4500})
    assert len(results) == 5


@pytest.mark.parametrize("search", ["WalkGP", "OpEvo"])
def test_the_same_seed_gives_the_same_order(tmp_path, search):
    given = strategy(search, seed=3)
    first, again, other = (
        keys(simulate(tmp_path, each, {"max_fevals": 30})[0]) for each in (given, given, strategy(search, seed=4))
    )
    assert first == again != other


@pytest.mark.parametrize("higher_is_better", [False, True])
def test_it_minimises_and_maximises(tmp_path, higher_is_better):
    _, env = simulate(
        tmp_path,
        strategy("WalkGP"),
        {"max_fevals": 40},
        objective="GFLOP/s",
        objective_higher_is_better=higher_is_better,
        metrics={"GFLOP/s": lambda p: 100 / p["time"]},
    )
    values = [100 / time_of(dict(zip(PARAMETERS, each))) for each in itertools.product(*PARAMETERS.values())]
    assert env["best_config"]["GFLOP/s"] == (max if higher_is_better else min)(values)


def test_values_of_numpy_are_numbers(tmp_path):
    from kernel_tuner.searchspace import Searchspace

    from nni_tensor_tuners.frontends.kernel_tuner import space_of

    values = {"a": list(np.arange(1, 4)), "b": [np.float32(0.5), 2], "c": [True, False], "d": [1, "2"], "e": ["only"]}
    space, native = space_of(Searchspace(values, ["a > 1"], 1024))
    assert [(each.name, type(each)) for each in space.parameters] == [
        ("a", Discrete),
        ("b", Discrete),
        ("c", Choice),
        ("d", Choice),
    ]
    assert sorted(map(str, (space.config(point) for point in native))) == sorted(
        str({"a": a, "b": b, "c": c, "d": d}) for a in (2, 3) for b in (0.5, 2) for c in (True, False) for d in (1, "2")
    )


def test_a_space_of_one_configuration(tmp_path):
    results, _ = simulate(tmp_path, strategy("WalkGP"), {"max_fevals": 5}, lambda config: 1.0, parameters={"tile": [4]})
    assert keys(results, ["tile"]) == [(4,)]


KERNEL = 'extern "C" float kernel() { return tile == 4 ? 1.0f : 2.0f + tile; }'


def test_what_is_in_its_cache_is_not_measured_again(tmp_path):
    def tune(evaluations):
        results, _ = kernel_tuner.tune_kernel(
            "kernel",
            KERNEL,
            1,
            [],
            {"tile": [1, 2, 4, 8, 16]},
            lang="C",
            strategy=strategy("OpEvo"),
            strategy_options={"max_fevals": evaluations},
            cache=str(tmp_path / "cache.json"),
            quiet=True,
        )
        return results

    first = tune(2)
    second = tune(4)
    assert keys(second, ["tile"])[:2] == keys(first, ["tile"])
    assert [result["compile_time"] > 0 for result in first + second] == [True, True, False, False, True, True]


@pytest.mark.parametrize(
    "given, message",
    [
        ({"search": "WalkGB"}, "unknown search 'WalkGB'"),
        ({"initail": 4}, "did you mean 'initial'"),
        ({"initial": 0}, "initial must be an integer >= 1"),
        ({"seed": "0"}, "seed must be an integer"),
    ],
)
def test_wrong_arguments_are_one_line(given, message):
    with pytest.raises(ValueError, match=message) as raised:
        strategy(**given)
    assert "\n" not in str(raised.value)


def test_what_it_cannot_do_is_one_line(tmp_path):
    with pytest.raises(ValueError, match="Unrecognized option popsize"):
        simulate(tmp_path, strategy(), {"max_fevals": 5, "popsize": 4})
    with pytest.raises(ValueError, match="objectives: our searches take one, got time, scale"):
        simulate(tmp_path, strategy(), {"max_fevals": 5}, objectives={"time": False, "scale": True})
