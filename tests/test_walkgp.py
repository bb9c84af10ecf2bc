"""WalkGP: the kernel, the Gaussian process, the acquisition and its optimiser, batches, failures, transfer."""

import math
import random
from itertools import combinations
from statistics import mean

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.optimize import check_grad
from scipy.stats import norm
from test_search import MM1, planted, run
from test_space import spaces

from nni_tensor_tuners import SearchSpace, create_search
from nni_tensor_tuners.search.gaussian_process import GaussianProcess
from nni_tensor_tuners.search.kernel import KERNELS, Axis, Encoder, parameter_axes
from nni_tensor_tuners.search.walkgp import ALONE_FROM, LATE, log_expected_improvement, standard_scores
from nni_tensor_tuners.space import Choice, Discrete, Factor, Permutation

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
    assert np.allclose(Axis(size, None).correlation(length), stops / np.outer(scale, scale))


def test_a_complete_graph_s_correlation_is_where_the_q_random_walk_stops():
    q, size = 0.7, 4
    stops = (1 - q) * np.linalg.inv(np.eye(size) - q * (np.ones((size, size)) - np.eye(size)) / (size - 1))
    between = stops[0, 1] / stops[0, 0]
    assert np.allclose(Axis(size, None, complete=True).correlation(math.log(between / (1 - between))), stops / stops[0, 0])


def test_numbers_are_seen_more_smoothly_than_tile_extents():
    (numbers, powers) = parameter_axes(
        SearchSpace.from_json({"b": {"_type": "discrete", "_value": [1, 2, 3, 4, 5]}}).parameters[0]
    )
    (extents,) = parameter_axes(SearchSpace.from_json({"X": {"_type": "factor", "_value": [16, 2]}}).parameters[0])
    walk, rbf = (numbers.correlation(0.0, kernel) for kernel in ("walk", "rbf"))
    assert np.allclose(numbers.correlation(0.0), (walk + rbf) / 2)
    assert np.allclose(powers.correlation(0.0), (powers.correlation(0.0, "walk") + powers.correlation(0.0, "rbf")) / 2)
    assert np.allclose(extents.correlation(0.0), walk) and not np.allclose(walk, rbf, atol=0.05)


@pytest.mark.parametrize("kernel", KERNELS)
@settings(max_examples=40, deadline=None)
@given(json_space=spaces, seed=st.integers(0, 99))
def test_the_kernel_is_a_covariance_on_every_space(kernel, json_space, seed):
    space = SearchSpace.from_json(json_space)
    encoder = Encoder(space)
    rows = encoder.rows(random_points(space, 40, seed)).astype(float)
    lengths = np.random.default_rng(seed).normal(size=len(encoder.axes))
    k = np.exp(rows @ encoder.log_table(lengths, kernel) @ rows.T)
    assert np.allclose(np.diag(k), 1) and np.allclose(k, k.T)
    assert np.linalg.eigvalsh(k).min() > -1e-6


def test_an_edge_between_adjacent_positions_is_one_step_along_one_axis():
    factor = Factor("X", 2**5 * 3, 4)
    axes = parameter_axes(factor)
    assert [axis.size for axis in axes] == [6, 6, 6, 2, 2, 2]
    levels = [axis.level((4, 2, 4, 3)) for axis in axes]
    moved = [axis.level((4, 4, 2, 3)) for axis in axes]
    assert levels == [0, 2, 3, 1, 1, 1]
    assert sorted(abs(a - b) for a, b in zip(levels, moved)) == [0, 0, 0, 0, 0, 1]


def test_axes_of_the_other_types():
    assert [axis.size for axis in parameter_axes(Choice("c", ["a", "b", "c"]))] == [3]
    assert [axis.level((2, 0, 1)) for axis in parameter_axes(Permutation("o", ["i", "j", "k"]))] == [1, 2, 0]
    assert len(parameter_axes(Discrete("t", [32, 64, 128]))) == 1  # the powers of two say the same as the order
    rank, powers = parameter_axes(Discrete("t", [16, 32, 48, 64, 96, 128]))
    assert [powers.level(number) for number in (16, 48, 32, 96, 64, 128)] == [0, 0, 1, 1, 2, 3]
    assert len(parameter_axes(Discrete("t", [16, 32, 48]), divisibility=False)) == 1
    assert len(parameter_axes(Discrete("t", [0, 0.5, 3]))) == 1


def test_huge_parameters_have_no_huge_tables():
    space = SearchSpace.from_json(
        {"X": {"_type": "factor", "_value": [2**40, 6]}, "u": {"_type": "randint", "_value": [1, 10**6]}}
    )
    assert Encoder(space).width == 5 * 41 + 128 + 20


# The Gaussian process.


def fitted(seed=0, count=40):
    space = SearchSpace.from_json(MM1)
    encoder = Encoder(space)
    points = random_points(space, count, seed)
    rows = encoder.rows(points)
    scores = standard_scores(np.array([planted(space.config(point)) for point in points]))
    process = GaussianProcess(encoder)
    process.fit(rows, scores)
    return process, rows, scores


@pytest.mark.parametrize("shortened", [0.0, 0.7])
def test_the_posterior_is_the_textbook_s_and_grows_row_by_row(shortened):
    process, rows, scores = fitted()
    lengths = process._theta[:-1] - shortened
    process.append(rows[:10])  # forgotten with the lengths
    process.shorten(fitted()[0], shortened)
    for row in rows[len(process) : 30]:
        process.append(row[None])
    process.explain(scores[:30])
    table = process.encoder.log_table(lengths, process.kernel)

    def k(a, b):
        return np.exp(a.astype(float) @ table @ b.T.astype(float))

    inverse = np.linalg.inv(k(rows[:30], rows[:30]) + process.noise * np.eye(30))
    across = k(rows[30:], rows[:30])
    mean_, deviation = process.predict(rows[30:])
    assert np.allclose(mean_, across @ inverse @ scores[:30], atol=1e-4)
    variance = 1 - np.einsum("ij,jk,ik->i", across, inverse, across)
    assert np.allclose(deviation, np.sqrt(process.amplitude * variance), atol=1e-3)
    assert process.amplitude == pytest.approx((scores[:30] @ inverse @ scores[:30] + 2) / 32)


def test_the_gradient_of_the_marginal_likelihood():
    process, rows, scores = fitted()
    theta = process._theta + 0.3
    loss, gradient = process._loss(theta, rows.astype(float), scores)
    error = check_grad(lambda t: process._loss(t, rows, scores)[0], lambda t: process._loss(t, rows, scores)[1], theta)
    assert error < 1e-2 * np.linalg.norm(gradient)
    assert process._loss(process._theta, rows.astype(float), scores)[0] < loss  # it was fitted


def test_outstanding_trials_lower_the_deviation_and_leave_the_mean():
    process, rows, scores = fitted()
    process.append(rows[:30])
    process.explain(scores[:30])
    before = process.predict(rows[30:])
    process.append(rows[30:33])
    process.explain(np.concatenate([scores[:30], [np.nan] * 3]))
    after = process.predict(rows[30:])
    assert np.allclose(before[0], after[0], atol=1e-4)
    assert (after[1] <= before[1] + 1e-3).all() and (after[1][:3] < 0.7 * before[1][:3]).all()


def test_reductions_are_what_conditioning_on_one_row_takes_off_all_variances():
    process, rows, scores = fitted()
    process.append(rows[:10])
    process.explain(scores[:10])
    others = rows[10:30]
    reductions = process.reductions(others)
    before = process.predict(others)[1] ** 2 / process.amplitude
    for i in (0, 7, 19):
        again, _, _ = fitted()
        again.append(np.vstack([rows[:10], others[i : i + 1]]))
        again.explain(np.zeros(11))
        after = again.predict(others)[1] ** 2 / again.amplitude
        assert reductions[i] / process.amplitude == pytest.approx((before - after).sum(), abs=1e-3)


# The acquisition.


@pytest.mark.parametrize("u", [-1000.0, -30.0, -8.0, -6.0, -5.9, -1.0, 0.0, 3.0])
def test_expected_improvement(u):
    deviation = 0.3
    # the integral over improvements t, with exp(-u^2 / 2) before it so that nothing underflows
    improvement, _ = quad(lambda t: t * math.exp(u * t - t * t / 2), 0, 40 / max(1, -u))
    exact = norm.logpdf(u) + math.log(improvement) + math.log(deviation)
    found = log_expected_improvement(np.array([u * deviation]), np.array([deviation]), 0.0)[0]
    assert found == pytest.approx(exact, abs=1e-6)
    assert found < log_expected_improvement(np.array([u * deviation + 0.01]), np.array([deviation]), 0.0)[0]


def test_scores_keep_the_order_and_know_no_units():
    fitness = np.random.default_rng(0).lognormal(size=50)
    scores = standard_scores(fitness)
    assert (np.argsort(scores) == np.argsort(fitness)).all()
    assert np.allclose(scores, standard_scores(1000 * fitness))
    assert scores.mean() == pytest.approx(0) and scores.std() == pytest.approx(1)
    logs = np.log(fitness)
    above = logs > logs.mean()
    assert np.corrcoef(scores[above], logs[above])[0, 1] == pytest.approx(1)  # lognormal: the logarithm
    assert np.ptp(scores[~above]) < 0.7 * np.ptp(logs[~above]) / logs.std()  # and less than that below
    ceiling = 1 - np.random.default_rng(0).lognormal(-4, 1, 50)
    assert not np.allclose(
        standard_scores(ceiling), (np.log(ceiling) - np.log(ceiling).mean()) / np.log(ceiling).std(), atol=0.01
    )
    assert standard_scores(np.array([2.0, 2.0])).tolist() == [0, 0]
    assert standard_scores(np.array([-1.0, 1.0])).tolist() == [-1, 1]


@pytest.mark.parametrize("constraints", [[], ["X[2] * X[1] <= 16 or c == 'a'"]])
def test_the_optimiser_finds_what_scoring_everything_finds(constraints):
    found = 0
    for seed in range(10):
        search = search_on(SMALL_SPACE, constraints, seed=seed)
        for _ in range(25):
            (config,) = search.ask(1)
            search.tell(config, small(config))
        (config,) = search.ask(1)
        chosen = search.space.point(config)
        everything = [point for point in search.space.points(random.Random(0)) if point == chosen or point not in search._seen]
        values = search._acquisition(search._encoder.rows(everything))
        found += values[everything.index(chosen)] >= values.max() - 1e-6
    assert found >= 9


def test_it_finds_a_planted_optimum_among_26_million():
    assert mean(run(search_on(seed=seed), planted, 100) == 1.0 for seed in range(4)) >= 0.75


def test_an_exhaustive_optimum_with_fewer_trials_than_random():
    best = max(small(config) for config in map(SearchSpace.from_json(SMALL_SPACE).config, everything_in(SMALL_SPACE)))
    assert mean(run(search_on(SMALL_SPACE, seed=seed), small, 40) >= best - 1e-12 for seed in range(5)) >= 0.8  # of 336


def everything_in(json_space):
    space = SearchSpace.from_json(json_space)
    return list(space.points(random.Random(0)))


# Batches, failures.


def test_a_batch_is_no_set_of_near_copies():
    search = search_on()
    for _ in range(20):
        (config,) = search.ask(1)
        search.tell(config, planted(config))
    first = search.space.point(search.ask(1)[0])
    around = [p for q in search.space.neighbouring_points(first) for p in [q, *search.space.neighbouring_points(q)]]
    around = [point for point in dict.fromkeys(around) if point not in search._seen]
    values = search._acquisition(search._encoder.rows(around))  # as if the first were not outstanding
    near_copies = [first, *(around[i] for i in np.argsort(-values)[:7])]
    batch = [first, *(search.space.point(config) for config in search.ask(7))]

    def adjacent(points):
        return sum(b in search.space.neighbouring_points(a) for a, b in combinations(points, 2))

    assert adjacent(batch) < adjacent(near_copies) / 2


def test_batches_of_eight_find_a_planted_optimum_too():
    best = 0
    for seed in range(4):
        search = search_on(seed=seed)
        for _ in range(20):
            for config in search.ask(8):
                search.tell(config, planted(config))
        best += max(search.results.values()) == 1.0
    assert best >= 3


def test_trials_that_fail_or_end_out_of_order_leave_the_batch_consistent():
    search, rng = search_on(SMALL_SPACE), random.Random(0)
    outstanding = []
    for _ in range(30):
        outstanding += search.ask(4)
        rng.shuffle(outstanding)
        while len(outstanding) > 6:
            config = outstanding.pop()
            search.tell(config, None if config["u"] == 512 else small(config))
    search.ask(1)
    known = set(search._model._points)
    assert all(search.results.get(point, 0) is not None for point in known)
    assert search._model.process.noise > 0 and len(known) == len(search._model.process)


def test_where_most_configurations_fail_it_learns_which():
    def failed_share(weight):
        failed = []
        for seed in range(4):
            search = search_on(seed=seed, failure_weight=weight)
            for trial in range(80):
                (config,) = search.ask(1)
                fails = config["X"][3] > 4 or config["Y"][3] > 4 or config["K"][2] > 2  # about 85 % of all
                search.tell(config, None if fails else planted(config))
                if trial >= 40:
                    failed.append(fails)
        return mean(failed)

    learned = failed_share(2.0)
    assert learned < 0.5 and learned < 0.8 * failed_share(0)


def test_it_goes_on_where_everything_has_failed():
    search = search_on()
    proposed = [search.ask(1)[0] for _ in range(2)]
    for _ in range(15):
        search.tell(proposed[-1], None)
        proposed += search.ask(1)
    assert len({str(config) for config in proposed}) == len(proposed)
    extents = {config["X"][3] for config in proposed}
    assert len(extents) >= 4  # it looks elsewhere


# Transfer.


def elsewhere():
    """MM1's planted optimum, measured on matrices of half the size."""
    halved = {"X": {"_type": "factor", "_value": [256, 4]}, "Y": MM1["Y"], "K": MM1["K"]}
    space = SearchSpace.from_json(halved)
    configs = [space.config(point) for point in random_points(space, 150)]
    return [(config, planted({**config, "X": [2 * config["X"][0], *config["X"][1:]]})) for config in configs]


def trials_until(search, level):
    for trial in range(1, 201):
        (config,) = search.ask(1)
        search.tell(config, planted(config))
        if planted(config) >= level:
            return trial
    return 201


def test_transfer_starts_ahead_and_costs_little_where_it_misleads():
    scratch, guided, misled = [], [], []
    for seed in range(6):
        scratch.append(trials_until(search_on(seed=seed), 0.6))
        for histories, trials in (
            ([elsewhere(), [({"X": [1] * 4, "Y": [1] * 4, "K": [1] * 3}, None)]], guided),
            ([[(config, 1 / fitness) for config, fitness in elsewhere()]], misled),
        ):
            search = search_on(seed=seed)
            search.transfer(histories)
            trials.append(trials_until(search, 0.6))
    assert mean(guided) < 0.6 * mean(scratch)
    assert mean(misled) <= mean(scratch) + 10


def test_sources_are_a_prior_mean_with_unknown_coefficients():
    """z ~ N(M b, K) with b ~ N(b', 1/P) is z ~ N(M b', K + M M' / P): the same predictions without estimating b."""
    search, records = search_on(), elsewhere()
    search.transfer([records[:75], records[75:]])
    for config in search.ask(13):
        search.tell(config, planted(config))
    search.ask(1)  # learns from the thirteen, with the sources
    model, process = search._model, search._model.process
    rows = search._encoder.rows([*search.results, *random_points(search.space, 50)])
    means = [source.mean(rows) for source in model.sources]
    columns = np.array([*(np.minimum(m, 0) + np.maximum(m, 0) / 2 for m in means), np.ones(len(rows))]).T
    covariance = process._correlation(rows, rows, float) + columns @ np.diag([1 / 2, 1 / 2, 1 / 10]) @ columns.T
    expected = columns @ [1, 1, 0]
    here, there = slice(0, 13), slice(13, None)
    scores = standard_scores(np.array(list(search.results.values())))
    weights = np.linalg.solve(covariance[here, here] + process.noise * np.eye(13), scores - expected[here])
    wanted = expected[there] + covariance[there, here] @ weights
    assert model.predict(rows[there])[0] == pytest.approx(wanted, abs=1e-3)


SOME_ALONE = {1: True, 2: False, 4: False, 8: False, 11: False, 12: True, 13: False, 14: False, 16: True, 38: False}
LATE_ALONE = {LATE - 1: False, LATE: True, LATE + 1: False, LATE + 3: False, LATE + 4: True}


@pytest.mark.parametrize("told, alone", [*SOME_ALONE.items(), *LATE_ALONE.items()])
def test_the_second_proposal_later_some_and_then_every_fourth_are_made_as_without_sources(told, alone):
    guided, scratch = search_on(), search_on()
    guided.transfer([elsewhere()])
    for config in map(guided.space.config, random_points(guided.space, told)):
        for search in (guided, scratch):
            search.tell(config, planted(config))
    assert (guided.ask(1) == scratch.ask(1)) == alone


def test_late_every_fourth_proposal_is_made_without_sources_and_with_shorter_lengths():
    """So it is the same whatever the source says, but not that of a search from scratch."""
    searches = [search_on() for _ in range(3)]
    for search, power in zip(searches, (1, -1)):
        search.transfer([[(config, fitness**power) for config, fitness in elsewhere()]])
    for config in map(searches[0].space.config, random_points(searches[0].space, LATE + 2)):
        for search in searches:
            search.tell(config, planted(config))
    good, bad, scratch = (search.ask(1) for search in searches)
    assert good == bad != scratch


@pytest.mark.parametrize("power, alone", [(1, []), (-1, [ALONE_FROM + 2])])
def test_sources_that_mislead_are_soon_left_out_of_every_second_proposal(power, alone):
    search = search_on()
    search.transfer([[(config, fitness**power) for config, fitness in elsewhere()]])
    for config in map(search.space.config, random_points(search.space, ALONE_FROM + 1)):
        search.tell(config, planted(config))
    left_out = []
    for trial in (ALONE_FROM + 1, ALONE_FROM + 2, ALONE_FROM + 3):
        (config,) = search.ask(1)
        if search._asked is search._alone:
            left_out.append(trial)
        search.tell(config, planted(config))
    assert left_out == alone


def test_late_every_fourth_proposal_is_beside_the_best():
    """So that with a source, too, the best of a search is at least better than its neighbours."""
    search = search_on()
    search.transfer([elsewhere()])
    configs = list(map(search.space.config, random_points(search.space, LATE + 1)))
    for config in configs:
        search.tell(config, planted(config))
    around = search.space.neighbours(max(configs, key=planted))
    for trial in range(LATE + 1, LATE + 4 * len(around) + 2, 4):
        unseen = [config for config in around if search.space.point(config) not in search.results]
        proposed = search.ask(4)
        assert (proposed[0] in unseen) == bool(unseen), trial
        for config in proposed:
            search.tell(config, None)
    assert unseen == []


def test_numbers_of_elsewhere_stand_for_the_nearest_and_other_elements_for_none():
    space = {"u": {"_type": "discrete", "_value": [16, 64, 256]}, "c": {"_type": "choice", "_value": ["a", "b"]}}
    search = search_on(space)
    rows = search._encoder.rows_elsewhere([{"u": 100, "c": "b"}, {"u": 1, "c": "a"}])
    assert (rows == search._encoder.rows([(64, 1), (16, 0)])).all()
    with pytest.raises(ValueError, match="transfer: search space parameter 'c': expected one of"):
        search.transfer([[({"u": 16, "c": "z"}, 1.0), ({"u": 64, "c": "a"}, 2.0)]])
    with pytest.raises(ValueError, match="transfer: expected the parameters u, c, got"):
        search.transfer([[({"u": 16}, 1.0), ({"u": 64}, 2.0)]])
    with pytest.raises(ValueError, match="transfer: fewer than two trials succeeded there"):
        search.transfer([[({"u": 16, "c": "a"}, 1.0)]])


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
