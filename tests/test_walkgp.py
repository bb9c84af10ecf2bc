"""WalkGP as a search: planted optima, batches, failures, numbers that admit no model, bad arguments."""

import math
import random
from itertools import combinations
from statistics import mean

import numpy as np
import pytest
from scipy.linalg import LinAlgError
from test_search import planted, run
from test_walkgp_model import SMALL_SPACE, random_points, search_on, small

from nni_tensor_tuners import SearchSpace, create_search
from nni_tensor_tuners.search.walkgp.acquisition import expected_gain
from nni_tensor_tuners.search.walkgp.process import GaussianProcess, Posterior
from nni_tensor_tuners.search.walkgp.scores import performance_scores


def test_it_finds_a_planted_optimum_among_26_million_and_goes_the_same_way_again():
    assert run(search_on(), planted, 100) == 1.0
    assert search_on(seed=3).ask(12) == search_on(seed=3).ask(12) != search_on(seed=4).ask(12)
    searches = [search_on(seed=3), search_on(seed=3)]
    for search in searches:
        run(search, planted, 12)
    assert list(searches[0].results) == list(searches[1].results)


def test_it_needs_fewer_trials_than_random_search():
    def trials_to_best(name, seed):
        search = create_search(name, SearchSpace.from_json(SMALL_SPACE), seed=seed)
        best = max(small(search.space.config(point)) for point in search.space.points(random.Random(0)))  # of 336
        for trial in range(1, 337):
            (config,) = search.ask(1)
            if small(config) == best:
                return trial
            search.tell(config, small(config))

    for seed in range(4):
        assert trials_to_best("WalkGP", seed) < trials_to_best("Random", seed)


# Batches, failures, numbers that admit no model.


def test_a_batch_is_no_set_of_near_copies():
    search = search_on()
    run(search, planted, 20)
    points = list(search.results)
    scores = performance_scores(np.array(list(search.results.values())))
    gain = expected_gain(search._performance.posterior(search._rows(points), scores, search._rows([])))
    batch = [search.space.point(config) for config in search.ask(8)]
    around = [p for q in search.space.neighbouring_points(batch[0]) for p in [q, *search.space.neighbouring_points(q)]]
    around = [point for point in dict.fromkeys(around) if point not in points]
    values = gain(search._rows(around))  # as if the first were not running
    near_copies = [batch[0], *(around[i] for i in np.argsort(-values)[:7])]

    def adjacent(points):
        return sum(b in search.space.neighbouring_points(a) for a, b in combinations(points, 2))

    assert adjacent(batch) < adjacent(near_copies) / 2


def test_trials_that_fail_or_end_out_of_order_are_told_apart(monkeypatch):
    search, rng = search_on(SMALL_SPACE), random.Random(0)
    given = []
    posterior = GaussianProcess.posterior

    def noting(process, rows, scores, running):
        if process is search._performance:
            given.append((rows, running))
        return posterior(process, rows, scores, running)

    monkeypatch.setattr(GaussianProcess, "posterior", noting)
    outstanding, proposed = [], []
    for _ in range(25):
        asked = search.ask(3)
        proposed += asked
        outstanding += asked
        rng.shuffle(outstanding)
        while len(outstanding) > 5:
            config = outstanding.pop()
            search.tell(config, None if config["u"] == 512 else small(config))
    assert len({str(config) for config in proposed}) == len(proposed)
    search.ask(1)
    succeeded = [point for point, fitness in search.results.items() if fitness is not None]
    running = sorted(map(search.space.point, outstanding), key=repr)
    assert (given[-1][0] == search._rows(succeeded)).all() and (given[-1][1] == search._rows(running)).all()


def test_where_most_configurations_fail_it_learns_which():
    def failed_share(weight, seed):
        search, failed = search_on(seed=seed, failure_weight=weight), []
        for _ in range(40):
            (config,) = search.ask(1)
            fails = config["X"][3] > 4 or config["Y"][3] > 4 or config["K"][2] > 2  # about 85 % of all
            search.tell(config, None if fails else planted(config))
            failed.append(fails)
        return mean(failed[20:])

    assert failed_share(2.0, 0) < failed_share(0, 0)


def test_it_goes_on_where_everything_has_failed():
    search = search_on()
    proposed = [search.ask(1)[0] for _ in range(2)]
    for _ in range(15):
        search.tell(proposed[-1], None)
        proposed += search.ask(1)
    assert len({str(config) for config in proposed}) == len(proposed)
    assert len({config["X"][3] for config in proposed}) >= 4  # it looks elsewhere


RNG = random.Random(0)
DEGENERATE = {
    "one value": lambda config: 1.0,
    "zero": lambda config: 0.0,
    "negative": lambda config: -1.0,
    "the largest number": lambda config: 1e308,
    "nothing between the largest and the smallest": lambda config: RNG.choice([1e308, 1e-308]),
    "both ends": lambda config: RNG.choice([-1e308, 1e308]),
    "no number": lambda config: float("nan"),
    "failing or not": lambda config: RNG.choice([None, 1.0]),
}


@pytest.mark.parametrize("fitness", DEGENERATE.values(), ids=DEGENERATE)
@pytest.mark.parametrize("sources", [0, 3])
def test_degenerate_results_end_no_search(fitness, sources):
    space = SearchSpace.from_json(SMALL_SPACE)
    search = create_search("WalkGP", space, seed=0)
    if sources:  # duplicate rows, too
        history = [(space.config(point), fitness(None)) for point in 2 * random_points(space, 20)]
        if sum(value is not None and math.isfinite(value) for _, value in history) > 1:
            search.transfer([[(c, v) for c, v in history if v is None or math.isfinite(v)]] * sources)
    proposed = []
    for _ in range(12):
        configs = search.ask(2)
        proposed += configs
        for config in configs:
            search.tell(config, fitness(config))
    assert len({str(config) for config in proposed}) == 24


@pytest.mark.parametrize("method", ["predict", "reductions", "__init__"])
def test_a_model_that_breaks_down_leaves_random_proposals(monkeypatch, method):
    def breaks(*_):
        raise LinAlgError

    monkeypatch.setattr(Posterior, method, breaks)
    search = search_on(SMALL_SPACE, ["X[2] <= 8"])
    run(search, small, 30)
    assert len(search.results) == 30 and all(point[0][2] <= 8 for point in search.results)


@pytest.mark.parametrize(
    "class_args, message",
    [
        ({"initial": 0}, "initial must be an integer >= 1, got 0"),
        ({"offspring": -1}, "offspring must be an integer >= 0, got -1"),
        ({"failure_weight": "x"}, "failure_weight must be a number from 0 to 100, got 'x'"),
        ({"kernel": "matern"}, "kernel must be one of mixed, walk, rbf, hamming, got 'matern'"),
        ({"divisibility": 1}, "divisibility must be true or false, got 1"),
    ],
)
def test_bad_arguments(class_args, message):
    with pytest.raises(ValueError, match=message):
        search_on(**class_args)
