"""WalkGP: the kernel, the process, transfer, the acquisition, its maximum, batches, failures, numbers that admit no model."""

import math
import random
from itertools import combinations
from statistics import mean

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.linalg import LinAlgError
from scipy.optimize import check_grad
from scipy.stats import norm
from test_search import MM1, TARGET, planted, run
from test_space import spaces

from nni_tensor_tuners import SearchSpace, create_search
from nni_tensor_tuners.search.walkgp.acquisition import expected_gain, log_expected_improvement, log_success
from nni_tensor_tuners.search.walkgp.covariance import KERNELS, WalkKernel, correlation
from nni_tensor_tuners.search.walkgp.maximise import Pool, maximise
from nni_tensor_tuners.search.walkgp.process import MIN_NOISE, GaussianProcess, Posterior, stable_cholesky
from nni_tensor_tuners.search.walkgp.scores import performance_scores, success_scale
from nni_tensor_tuners.search.walkgp.transfer import OFFSET_TRIALS, SOURCE_TRIALS, learn, trend_of

SMALL_SPACE = {
    "X": {"_type": "factor", "_value": [64, 3]},
    "u": {"_type": "discrete", "_value": [0, 16, 64, 512]},
    "c": {"_type": "choice", "_value": ["a", "b", "c"]},
}


def small(config):
    """A rugged landscape on SMALL_SPACE with many levels and one optimum."""
    tile = abs(math.log2(config["X"][2]) - 3) + 0.5 * abs(math.log2(config["X"][1]) - 1)
    return math.exp(-tile) * (1.5 if config["c"] == "b" else 1.0) / (1 + abs(config["u"] - 64) / 100) + 0.01 * math.sin(
        7 * tile
    )


def search_on(json_space=MM1, constraints=(), **class_args):
    return create_search("WalkGP", SearchSpace.from_json(json_space, constraints), **{"seed": 0, **class_args})


def random_points(space, count, seed=0):
    rng = random.Random(seed)
    return list(dict.fromkeys(space.random_point(rng) for _ in range(count)))


# The kernel.


@pytest.mark.parametrize("size, q", [(2, 0.3), (5, 0.5), (11, 0.9), (31, 0.99)])
def test_a_path_s_correlation_is_where_the_q_random_walk_stops(size, q):
    walk = np.zeros((size, size))
    for level in range(size):
        for step in (-1, 1):  # off the border means staying
            walk[min(max(level + step, 0), size - 1), level] += 0.5
    stops = (1 - q) * np.linalg.inv(np.eye(size) - q * walk)
    scale = np.sqrt(np.diag(stops))
    length = math.log(math.sqrt(q / (1 - q)) / size)
    assert np.allclose(correlation(size, length), stops / np.outer(scale, scale))


def test_a_complete_graph_s_correlation_is_where_the_q_random_walk_stops():
    q, size = 0.7, 4
    stops = (1 - q) * np.linalg.inv(np.eye(size) - q * (np.ones((size, size)) - np.eye(size)) / (size - 1))
    between = stops[0, 1] / stops[0, 0]
    assert np.allclose(correlation(size, math.log(between / (1 - between)), complete=True), stops / stops[0, 0])


def test_numbers_are_seen_more_smoothly_than_tile_extents():
    walk, rbf = (correlation(5, 0.0, kernel) for kernel in ("walk", "rbf"))
    assert np.allclose(correlation(5, 0.0, smooth=True), (walk + rbf) / 2)
    assert np.allclose(correlation(5, 0.0), walk) and not np.allclose(walk, rbf, atol=0.05)


@pytest.mark.parametrize("kernel", KERNELS)
@settings(max_examples=25, deadline=None)
@given(json_space=spaces, seed=st.integers(0, 99))
def test_the_kernel_is_a_covariance_on_every_space(kernel, json_space, seed):
    space = SearchSpace.from_json(json_space)
    walk_kernel = WalkKernel(space, kernel)
    rows = walk_kernel.rows(random_points(space, 40, seed)).astype(float)
    lengths = np.random.default_rng(seed).normal(size=len(walk_kernel.axes))
    k = walk_kernel.between(rows, rows, walk_kernel.table(lengths))
    assert np.allclose(np.diag(k), 1) or not walk_kernel.axes
    assert np.allclose(k, k.T) and np.linalg.eigvalsh(k).min() > -1e-9


def test_the_kernel_is_a_product_over_the_axes():
    space = SearchSpace.from_json(SMALL_SPACE)
    kernel = WalkKernel(space)
    points = random_points(space, 12)
    lengths = np.linspace(-1, 1, len(kernel.axes))
    levels = [axis.level(point[i]) for point in points for i, p in enumerate(space.parameters) for axis in p.axes()]
    levels = np.reshape(levels, (len(points), -1)).T
    each = [
        correlation(axis.size, length, complete=axis.complete, smooth=axis.smooth)[np.ix_(level, level)]
        for axis, length, level in zip(kernel.axes, lengths, levels)
    ]
    rows = kernel.rows(points)
    k = kernel.between(rows.astype(float), rows.astype(float), kernel.table(lengths))
    assert np.allclose(k, np.prod(each, axis=0))


def test_huge_parameters_have_no_huge_tables():
    space = SearchSpace.from_json(
        {"X": {"_type": "factor", "_value": [2**40, 6]}, "u": {"_type": "randint", "_value": [1, 10**5]}}
    )
    kernel = WalkKernel(space)
    assert kernel.width == 5 * 41 + 128 + 17
    low, high = kernel.rows([(space.parameters[0].origin(), u) for u in (1, 10**5 - 1)])
    assert low[205] == 1 and high[205 + 127] == 1


# The process: data, and trends that stand for what was measured elsewhere.


class Data:
    """Rows of MM1 with two trend columns, their scores, and a fitted process; ``k`` is its covariance, dense."""

    def __init__(self, count=40, weights=(0.7, 0.0)):
        space = SearchSpace.from_json(MM1)
        self.kernel = WalkKernel(space)
        points = random_points(space, count)
        self.scores = performance_scores(np.array([planted(space.config(point)) for point in points]))
        trend = np.column_stack([0.5 * np.sin(np.arange(count)), np.full(count, 0.3)])
        self.rows = np.hstack([self.kernel.rows(points), trend]).astype(np.float32)
        self.trend, self.weights = slice(self.kernel.width, self.kernel.width + 2), np.array(weights)
        self.process = GaussianProcess(self.kernel, self.trend, weights)
        self.process.posterior(self.rows[:30], self.scores[:30], self.rows[:0])  # fits theta
        self.theta, self.noise = self.process.theta, np.exp(self.process.theta[-1]) + MIN_NOISE

    def as_fitted(self):
        """A process with that theta, which is not fitted again."""
        process = GaussianProcess(self.kernel, self.trend, self.weights)
        process.theta, process._fit_at = self.theta, 1000
        return process

    def k(self, a, b):
        a, b = a.astype(float), b.astype(float)
        levels = slice(0, self.kernel.width)
        return self.kernel.between(a[:, levels], b[:, levels], self.kernel.table(self.theta[:-1]))

    def u(self, rows):
        return rows[:, self.trend].astype(float)


@pytest.fixture(scope="module")
def data():
    return Data()


def test_the_posterior_is_the_augmented_generalised_least_squares_solution(data):
    """The factors of the trends, estimated beside the scores: universal kriging (Rasmussen and Williams, equation 2.41)."""
    rows, new, z = data.rows[:30], data.rows[30:], data.scores[:30]
    inverse = np.linalg.inv(data.k(rows, rows) + data.noise * np.eye(30))
    across, u, u_new = data.k(new, rows), data.u(rows), data.u(new)
    covariance = np.linalg.inv(u.T @ inverse @ u + np.eye(2))
    factors = covariance @ (u.T @ inverse @ z + data.weights)
    left = u_new - across @ inverse @ u
    mean_ = across @ inverse @ (z - u @ factors) + u_new @ factors
    variance = 1 - np.sum(across @ inverse * across, axis=1) + np.sum(left @ covariance * left, axis=1)
    posterior = data.process.posterior(rows, z, rows[:0])
    found, deviation = posterior.predict(new)
    assert np.allclose(found, mean_, atol=1e-4) and np.allclose(posterior.mean(new), mean_, atol=1e-4)
    assert np.allclose(deviation, np.sqrt(posterior.amplitude * variance), atol=1e-3)
    residual, full = z - u @ data.weights, np.linalg.inv(data.k(rows, rows) + u @ u.T + data.noise * np.eye(30))
    assert posterior.amplitude == pytest.approx((residual @ full @ residual + 2) / 32)


def test_row_by_row_is_as_all_at_once(data):
    slow, fast = data.as_fitted(), data.as_fitted()
    for n in range(1, 31):
        posterior = slow.posterior(data.rows[:n], data.scores[:n], data.rows[n : n + 2])
    at_once = fast.posterior(data.rows[:30], data.scores[:30], data.rows[30:32])
    assert np.allclose(posterior.predict(data.rows), at_once.predict(data.rows), atol=1e-5)
    # Also where a trial that was explained is no longer one of those measured, or another one is the first.
    again = slow.posterior(data.rows[1:21], data.scores[1:21], data.rows[:0])
    assert np.allclose(again.mean(data.rows), fast.posterior(data.rows[1:21], data.scores[1:21], data.rows[:0]).mean(data.rows))


def test_running_trials_leave_the_mean_and_lower_the_deviation(data):
    """With the trends' factors uncertain, too: no estimator is changed by a trial that is outstanding."""
    rows, scores, new = data.rows[:30], data.scores[:30], data.rows[30:]
    before = data.process.posterior(rows, scores, rows[:0])
    after = data.process.posterior(rows, scores, new[:3])
    assert np.allclose(before.mean(new), after.mean(new), atol=1e-6)
    (_, wide), (_, narrow) = before.predict(new), after.predict(new)
    assert (narrow <= wide + 1e-4).all() and (narrow[:3] < 0.7 * wide[:3]).all()
    assert after.highest >= before.highest
    told = data.as_fitted().posterior(data.rows[:33], np.append(scores, before.mean(new[:3])), rows[:0])
    assert np.allclose(told.mean(new), after.mean(new), atol=1e-3)  # as if they had come out as predicted


def test_the_gradient_of_the_marginal_likelihood_and_that_it_is_climbed(data):
    rows, scores = data.rows[:30].astype(float), data.scores[:30]
    theta = data.theta + 0.3
    loss, gradient = data.process.loss(theta, rows, scores)
    error = check_grad(lambda t: data.process.loss(t, rows, scores)[0], lambda t: data.process.loss(t, rows, scores)[1], theta)
    assert error < 1e-2 * np.linalg.norm(gradient)
    assert data.process.loss(data.theta, rows, scores)[0] < min(loss, data.process.loss(np.zeros_like(theta), rows, scores)[0])


def test_reductions_are_what_conditioning_on_one_row_takes_off_all_variances(data):
    rows, scores, others = data.rows[:10], data.scores[:10], data.rows[10:30]
    process = data.as_fitted()
    posterior = process.posterior(rows, scores, rows[:0])
    before = posterior.predict(others)[1] ** 2
    reductions = posterior.reductions(others)
    for i in (0, 7, 19):
        after = process.posterior(rows, scores, others[i : i + 1]).predict(others)[1] ** 2
        assert reductions[i] == pytest.approx((before - after).sum(), rel=0.01)


def test_a_cholesky_factor_takes_jitter_and_no_more_than_that():
    twice = np.ones((3, 3))
    factor = stable_cholesky(twice)
    assert np.allclose(factor @ factor.T, twice, atol=0.02)
    for matrix in (-np.eye(2), np.full((2, 2), np.nan), np.array([[1.0, 2.0], [2.0, 1.0]])):
        with pytest.raises(LinAlgError):
            stable_cholesky(matrix)


# Scores.


def test_scores_keep_the_order_and_know_no_units():
    fitness = np.random.default_rng(0).lognormal(size=50)
    scores = performance_scores(fitness)
    assert (np.argsort(scores) == np.argsort(fitness)).all()
    assert np.allclose(scores, performance_scores(1000 * fitness))
    assert scores.mean() == pytest.approx(0) and scores.std() == pytest.approx(1)
    logs = np.log(fitness)
    above = logs > logs.mean()
    assert np.corrcoef(scores[above], logs[above])[0, 1] == pytest.approx(1)  # lognormal: the logarithm
    assert np.ptp(scores[~above]) < 0.7 * np.ptp(logs[~above]) / logs.std()  # and less than that below
    ceiling = np.log(1 - np.random.default_rng(0).lognormal(-4, 1, 50))
    assert not np.allclose(performance_scores(np.exp(ceiling)), (ceiling - ceiling.mean()) / ceiling.std(), atol=0.01)


@pytest.mark.parametrize(
    "fitness, wanted",
    [([2.0, 2.0], [0, 0]), ([-1.0, 1.0], [-1, 1]), ([0.0, 0.0], [0, 0]), ([5.0], [0]), ([], []), ([-1e308, 1e308], [-1, 1])],
)
def test_scores_of_what_is_no_sample_of_a_normal_variable(fitness, wanted):
    assert performance_scores(np.array(fitness)) == pytest.approx(wanted)


# Transfer.


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
    precision = [1 / SOURCE_TRIALS] * 2 + [1 / OFFSET_TRIALS]
    assert np.allclose(trend(rows) ** 2, np.array([[1, 0, 1], [1, 0, 1], [0, 1, 1], [0, 1, 1]]) * precision)


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


# The acquisition and its maximum.


@pytest.mark.parametrize("u", [-1000.0, -30.0, -8.0, -6.0, -5.9, -1.0, 0.0, 3.0])
def test_expected_improvement(u):
    deviation = 0.3
    # the integral over improvements t, with exp(-u^2 / 2) before it so that nothing underflows
    improvement, _ = quad(lambda t: t * math.exp(u * t - t * t / 2), 0, 40 / max(1, -u))
    exact = norm.logpdf(u) + math.log(improvement) + math.log(deviation)
    found = log_expected_improvement(np.array([u * deviation]), np.array([deviation]), 0.0)[0]
    assert found == pytest.approx(exact, abs=1e-6)
    assert found < log_expected_improvement(np.array([u * deviation + 0.01]), np.array([deviation]), 0.0)[0]


def test_the_gain_is_log_ei_and_the_weighed_log_of_success(data):
    performance = data.process.posterior(data.rows[:30], data.scores[:30], data.rows[:0])
    outcomes = np.arange(30) % 3 > 0
    zero, unit = success_scale(outcomes)
    process = GaussianProcess(data.kernel, data.trend, data.weights)
    learned = process.posterior(data.rows[:30], (outcomes - zero) / unit, data.rows[:0])
    ei = log_expected_improvement(*performance.predict(data.rows), performance.highest)
    assert np.allclose(expected_gain(performance)(data.rows), ei)
    log_p = log_success(data.rows, learned, zero, unit)
    assert (log_p <= 0).all() and log_p[:30][outcomes].mean() > log_p[:30][~outcomes].mean() + 0.3
    assert np.allclose(expected_gain(performance, (learned, zero, unit), 2.0)(data.rows), ei + 2 * log_p)


@pytest.mark.parametrize("constraints", [[], ["X[2] * X[1] <= 16 or c == 'a'"]])
def test_the_maximum_is_what_scoring_everything_finds(constraints):
    space = SearchSpace.from_json(SMALL_SPACE, constraints)
    kernel = WalkKernel(space)
    everything = list(space.points(random.Random(0)))
    found = 0
    for seed in range(10):
        measured = random_points(space, 25, seed)
        fitness = {point: small(space.config(point)) for point in measured}
        scores = performance_scores(np.array(list(fitness.values())))
        gain = expected_gain(GaussianProcess(kernel).posterior(kernel.rows(measured), scores, kernel.rows([])))
        pool, rng = Pool(space, kernel.rows), random.Random(seed)
        pool.widen(rng)
        chosen = maximise(gain, pool, fitness, set(measured), 300, rng)
        unseen = [point for point in everything if point not in fitness]
        assert chosen in unseen
        found += gain(kernel.rows([chosen]))[0] >= gain(kernel.rows(unseen)).max() - 1e-5
    assert found >= 9


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
