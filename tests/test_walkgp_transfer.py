"""What WalkGP makes of what was measured elsewhere."""

import numpy as np
import pytest
from scipy.stats import spearmanr
from test_search import MM1, TARGET, planted, run
from test_walkgp_model import random_points, search_on

from nni_tensor_tuners import SearchSpace
from nni_tensor_tuners.search.walkgp.covariance import WalkKernel
from nni_tensor_tuners.search.walkgp.process import GaussianProcess
from nni_tensor_tuners.search.walkgp.program_sources import ProgramSources
from nni_tensor_tuners.search.walkgp.scores import performance_scores
from nni_tensor_tuners.search.walkgp.transfer import SOURCE_TRIALS, learn, trend_of


def elsewhere(power=1):
    """MM1's planted optimum, measured on matrices of half the size; with the power -1 the other way round."""
    halved = {"X": {"_type": "factor", "_value": [256, 4]}, "Y": MM1["Y"], "K": MM1["K"]}
    space = SearchSpace.from_json(halved)
    configs = [space.config(point) for point in random_points(space, 120)]
    return [(config, planted({**config, "X": [2 * config["X"][0], *config["X"][1:]]}) ** power) for config in configs]


def best_after(trials, seed, history=None):
    search = search_on(seed=seed)
    if history:
        search.transfer([history])
    return run(search, planted, trials)


def test_a_source_puts_a_search_ahead_and_a_reversed_one_loses_its_say():
    seeds = range(3)
    scratch = [best_after(15, seed) for seed in seeds]
    guided = [best_after(15, seed, elsewhere()) for seed in seeds]
    assert all(with_source > without for with_source, without in zip(guided, scratch))
    search = search_on()
    search.transfer([elsewhere(-1)])
    target = search._rows([search.space.point(TARGET)])
    others = search._rows(random_points(search.space, 50))

    def advantage():
        configs = list(search.results)
        scores = performance_scores(np.array(list(search.results.values())))
        posterior = search._performance.posterior(search._rows(configs), scores, target[:0])
        return posterior.mean(target)[0] - posterior.mean(others).mean()

    assert advantage() < -1  # before anything is measured the source is believed
    run(search, planted, 40)
    assert advantage() > 0.5


def test_three_copies_of_a_source_count_as_one():
    space = SearchSpace.from_json(MM1)
    kernel = WalkKernel(space)
    points = random_points(space, 60)
    levels, scores = kernel.rows(points), performance_scores(np.array([planted(space.config(point)) for point in points]))
    source = learn(kernel, levels[:40], [planted(space.config(point)) for point in points[:40]])
    predictions = []
    for copies in (1, 3):
        trend, w = trend_of([source.performance] * copies, source.rows)
        rows = np.hstack([levels, trend(levels)])
        process = GaussianProcess(kernel, slice(kernel.width, kernel.width + len(w)), w)
        for n in (0, 20):
            predictions.append(process.posterior(rows[:n], scores[:n], rows[50:52]).predict(rows))
    assert np.allclose(predictions[0], predictions[2], atol=1e-4)
    assert np.allclose(predictions[1], predictions[3], atol=1e-3)


def test_sources_that_say_different_things_count_in_full():
    rows = np.eye(4, dtype=np.float32)

    class Says:
        def __init__(self, *means):
            self.means = np.array(means, dtype=float)

        def mean(self, rows):
            return rows @ self.means

    trend, w = trend_of([Says(1, -1, 0, 0), Says(0, 0, 1, -1)], rows)
    assert np.allclose(trend(rows) @ w, [1, -1, 1, -1])  # the prior mean is the sum of what they say
    assert np.allclose(trend(rows) ** 2, np.array([[1, 0], [1, 0], [0, 1], [0, 1]]) / SOURCE_TRIALS)


def test_failures_elsewhere_are_kept_away_from():
    def fails(config):
        return config["X"][3] > 8 or config["Y"][3] > 8

    tried = {}
    for knows in (False, True):
        history = [(config, None if fails(config) else fitness) for config, fitness in elsewhere()]
        search = search_on()
        search.transfer([history if knows else [(config, fitness) for config, fitness in history if fitness is not None]])
        tried[knows] = [config for _ in range(6) for config in search.ask(2)]
    assert sum(map(fails, tried[True])) < sum(map(fails, tried[False]))


def test_the_fewer_failed_elsewhere_the_less_is_made_of_it():
    space = SearchSpace.from_json(MM1)
    kernel = WalkKernel(space)
    levels = kernel.rows(random_points(space, 12))
    for failures in (2, 8):
        source = learn(kernel, levels, [None] * failures + [1.0, 2.0] * ((12 - failures) // 2))
        assert source.share == failures / (failures + SOURCE_TRIALS)
        trend, w = trend_of([source.success], source.rows, [source.share])
        assert np.allclose(trend(levels) @ w, source.share * source.success.mean(levels), atol=1e-5)


def test_what_failed_elsewhere_and_works_here_is_found_out():
    def good(config):
        return config["X"][3] >= 8

    source = [(config, None if good(config) else fitness) for config, fitness in elsewhere()]
    for seed in range(3):
        search = search_on(seed=seed)
        search.transfer([source])
        tried = []
        for _ in range(8):
            tried += search.ask(1)
            search.tell(tried[-1], planted(tried[-1]))
        assert any(map(good, tried))


def test_the_model_is_the_same_whatever_is_running():
    """A source's factor is estimated from what is measured, at any concurrency."""
    searches = [search_on(), search_on()]
    configs = [searches[0].space.config(point) for point in random_points(searches[0].space, 22)]
    for search, others in zip(searches, ([], configs[17:])):
        search.transfer([elsewhere()])
        for config in configs[:17]:
            search.tell(config, planted(config))
        for config in others:
            search.exclude(config)
        search.ask(1)
    assert np.allclose(searches[0]._performance.theta, searches[1]._performance.theta)


def test_what_was_told_before_takes_the_place_of_the_start_and_of_nothing_else():
    warm, cold = search_on(), search_on()
    for search in (warm, cold):
        search.transfer([elsewhere()])
    for config in map(warm.space.config, random_points(warm.space, 40)):
        warm.tell(config, planted(config))
        cold.exclude(config)
        cold.tell(config, planted(config))
    assert warm.ask(3) == cold.ask(3)


def test_configurations_of_elsewhere_are_read_by_the_parameters():
    space = {"u": {"_type": "discrete", "_value": [16, 64, 256]}, "c": {"_type": "choice", "_value": ["a", "b"]}}
    search = search_on(space)
    search.transfer([[({"u": 100, "c": "b"}, 1.0), ({"u": 1, "c": "a"}, 2.0)]])
    assert (search._sources[0].rows == search._kernel.rows([(64, 1), (16, 0)])).all()
    with pytest.raises(ValueError, match="transfer: search space parameter 'c': expected one of"):
        search.transfer([[({"u": 16, "c": "z"}, 1.0), ({"u": 64, "c": "a"}, 2.0)]])
    with pytest.raises(ValueError, match="transfer: expected the parameters u, c, got"):
        search.transfer([[({"u": 16}, 1.0), ({"u": 64}, 2.0)]])
    with pytest.raises(ValueError, match="transfer: fewer than two trials succeeded there"):
        search.transfer([[({"u": 16, "c": "a"}, 1.0)]])


# Features of programs.


def of_programs(count, seed, speed=1.0):
    """(Features, fitness) of a source, which two of five features decide."""
    features = np.random.default_rng(seed).standard_normal((count, 5))
    return [*zip(features.tolist(), speed * np.exp(features[:, 0] - np.abs(features[:, 1])))]


def test_what_holds_of_all_sources_programs_is_foretold_of_others():
    sources = ProgramSources([of_programs(60, seed) for seed in range(4)])
    features, fitness = zip(*of_programs(200, seed=9))
    assert spearmanr(sources.mean(features), fitness).statistic > 0.85


def test_sources_count_alike_however_fast_their_devices_are():
    features, _ = zip(*of_programs(50, seed=9))
    slow = ProgramSources([of_programs(60, 0), of_programs(60, 1)])
    fast = ProgramSources([of_programs(60, 0), of_programs(60, 1, speed=1000)])
    np.testing.assert_allclose(slow.mean(features), fast.mean(features), atol=1e-4)


def test_nothing_is_learned_of_failed_trials_nor_of_sources_with_one_success():
    features, _ = zip(*of_programs(50, seed=9))
    one = [([9.0] * 5, 1.0)]
    known = ProgramSources([of_programs(60, 0)])
    more = ProgramSources([[*of_programs(60, 0), ([0.0] * 5, None)], one])
    assert (known.mean(features) == more.mean(features)).all()
    with pytest.raises(ValueError, match="transfer: fewer than two trials succeeded there"):
        ProgramSources([one])


def test_sources_without_differences_say_nothing():
    sources = ProgramSources([[([0.0], 1.0), ([1.0], 1.0)], [([2.0], 3.0), ([3.0], 3.0)]])
    assert not sources.mean([[0.0], [1.5]]).any()


def test_long_histories_are_learned_from():
    rng = np.random.default_rng(0)
    features = rng.standard_normal((3000, 2))
    sources = ProgramSources([list(zip(features, np.exp(features[:, 0])))])
    assert spearmanr(sources.mean(features), features[:, 0]).statistic > 0.99
