"""WalkGP's model and what it makes of it: covariance, process, scores, acquisition, maximum."""

import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.linalg import LinAlgError
from scipy.optimize import check_grad
from scipy.stats import norm
from test_search import MM1, planted
from test_space import spaces

from nni_tensor_tuners import SearchSpace, create_search
from nni_tensor_tuners.search.walkgp.acquisition import expected_gain, log_expected_improvement, log_success
from nni_tensor_tuners.search.walkgp.covariance import KERNELS, WalkKernel, correlation
from nni_tensor_tuners.search.walkgp.maximise import Pool, maximise
from nni_tensor_tuners.search.walkgp.process import CONSTANT, MIN_NOISE, REFIT, GaussianProcess, next_fit, stable_cholesky
from nni_tensor_tuners.search.walkgp.scores import performance_scores, success_scale

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
    """The constant and the factors of the trends, estimated beside the scores: universal kriging (Rasmussen and Williams,
    equation 2.41)."""
    rows, new, z = data.rows[:30], data.rows[30:], data.scores[:30]
    inverse = np.linalg.inv(data.k(rows, rows) + data.noise * np.eye(30))
    across, weights = data.k(new, rows), np.append(data.weights, 0)
    u, u_new = (np.hstack([data.u(each), np.full((len(each), 1), CONSTANT**0.5)]) for each in (rows, new))
    covariance = np.linalg.inv(u.T @ inverse @ u + np.eye(3))
    factors = covariance @ (u.T @ inverse @ z + weights)
    left = u_new - across @ inverse @ u
    mean_ = across @ inverse @ (z - u @ factors) + u_new @ factors
    variance = 1 - np.sum(across @ inverse * across, axis=1) + np.sum(left @ covariance * left, axis=1)
    posterior = data.process.posterior(rows, z, rows[:0])
    found, deviation = posterior.predict(new)
    assert np.allclose(found, mean_, atol=1e-4) and np.allclose(posterior.mean(new), mean_, atol=1e-4)
    assert np.allclose(deviation, np.sqrt(posterior.amplitude * variance), atol=1e-3)
    residual, full = z - u @ weights, np.linalg.inv(data.k(rows, rows) + u @ u.T + data.noise * np.eye(30))
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


def test_models_of_different_phases_are_fitted_in_different_batches_and_as_often():
    batches, fits = range(16, 4000, 16), {}
    for phase in (0, 1 / 3, 2 / 3):
        fits[phase], due = [], 2
        for count in batches:
            if count >= due:
                fits[phase].append(count)
                due = next_fit(count, phase)
                assert count < due <= math.ceil(count * REFIT)
        assert all(after < before * REFIT + 16 for before, after in zip(fits[phase], fits[phase][1:]))
    first, second, third = ({count for count in found if count >= 512} for found in fits.values())
    assert first and not (first & second or second & third or third & first)
    assert [next_fit(count) for count in (2, 19, 20, 100)] == [3, 20, 22, 110]


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


def test_the_pool_s_oldest_points_leave_and_none_is_there_twice(monkeypatch):
    monkeypatch.setattr("nni_tensor_tuners.search.walkgp.maximise.MAX_POOL", 600)
    tile = {"_type": "factor", "_value": [1024, 4]}
    space, rng = SearchSpace.from_json({"X": tile, "Y": tile}), random.Random(0)
    kernel = WalkKernel(space)
    pool = Pool(space, kernel.rows)
    pool.widen(rng)
    for part in (1.0, 0.1, 0.1, 1.0, 1.0):
        before = list(pool.points)
        pool.widen(rng, part)
        new = [point for point in pool.points if point not in before]
        assert len(new) <= 100 * part
        assert pool.points == [*before, *new][-600:] and len(set(pool.points)) == len(pool.points)
        assert np.array_equal(pool.rows, kernel.rows(pool.points))


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
        chosen, *_ = maximise(gain, pool, fitness, set(measured), 300, rng)
        unseen = [point for point in everything if point not in fitness]
        assert chosen in unseen
        found += gain(kernel.rows([chosen]))[0] >= gain(kernel.rows(unseen)).max() - 5e-5  # single precision
    assert found >= 9
