"""Gaussian process regression: theta fitted to the data, and the posterior given the data and the trials still running."""

import functools
import math
from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError, cho_solve, cholesky, solve_triangular
from scipy.linalg.blas import strmm
from scipy.optimize import minimize

from .covariance import WalkKernel

# Normal priors (mean, standard deviation) of the log lengths and of the log noise, the noise as a share of the amplitude. Weak:
# some tens of results outvote them.
LENGTH_PRIOR, NOISE_PRIOR = (0.0, 1.0), (-5.0, 1.5)
MIN_NOISE = 1e-5
# Variance of the constant that all scores have in common, in amplitudes. Scores are 0 in the mean over the trials, which a search
# has chosen: what is like none of them, and would be like a random one, must not be taken for one of these.
CONSTANT = 1.0
# Inverse-gamma prior of the amplitude, shape and rate: about 1, the variance of standardised scores.
SHAPE, RATE = 1.0, 1.0
# Theta is fitted to at most this many results, in so many iterations or until one gains less than this share of the log density.
MAX_FITTED, MAX_ITERATIONS, LEAST_GAIN = 256, 15, 1e-4
# What is fitted is fitted again when there are so many times as many results.
REFIT = 1.1
# Added to a diagonal in turn, as shares of its mean, until the matrix has a Cholesky factor.
JITTERS = (0.0, 1e-8, 1e-6, 1e-4, 1e-2)


class GaussianProcess:
    """z ~ N(U w, a (c + k + U U' + noise I)), U the columns ``trend`` of the rows; k a `WalkKernel`.

    c is what is left when an unknown constant N(0, a c) is integrated out; U U' likewise of the factors b ~ N(b', a diag(1 / p))
    of trends M = U diag(p)^(1/2), w = p^(1/2) b' (universal kriging; Rasmussen and Williams 2006, section 2.7), so that nothing
    below has to know of them. Theta maximises
    the marginal likelihood times its priors, a is at the mode of its posterior. Kept from one proposal to the next: theta, fitted
    now and then (`next_fit`), and the inverse Cholesky factor of the trials measured, so that a further one costs O(n^2).
    """

    def __init__(self, kernel, trend=slice(0, 0), weights=(), phase=None):
        self.kernel, self._trend, self._weights, self._phase = kernel, trend, np.array(weights, dtype=float), phase
        priors = [*[LENGTH_PRIOR] * len(kernel.axes), NOISE_PRIOR]
        self.prior = tuple(map(np.array, zip(*priors)))  # means, deviations
        self.theta = self.prior[0].copy()
        self._fit_at, self._factor = 2, None

    def posterior(self, rows, scores, running):
        """The `Posterior` given scores (n,) of rows, and rows of running trials; LinAlgError where the numbers admit none."""
        if len(rows) >= self._fit_at:
            self.theta, self._factor = self.fitted(rows, scores), None
            self._fit_at = next_fit(len(rows), self._phase)
        if self._factor is None or not np.array_equal(self._factor.rows, rows[: len(self._factor.rows)]):
            noise = np.exp(self.theta[-1]) + MIN_NOISE
            covariance = Covariance(self.kernel, self.kernel.table(self.theta[:-1]), self._trend, noise)
            self._factor = Factor(covariance, rows[:0], np.zeros((0, 0)))
        self._factor = self._factor.extended(rows[len(self._factor.rows) :])
        return Posterior(self._factor, scores - rows[:, self._trend] @ self._weights, self._weights, running)

    def fitted(self, rows, scores):
        """The theta of highest posterior density found from the present one."""
        chosen = evenly(scores, MAX_FITTED)
        mean, deviation = self.prior
        bounds = list(zip(mean - 4 * deviation, mean + 4 * deviation))
        arguments, options = (rows[chosen].astype(float), scores[chosen]), {"maxiter": MAX_ITERATIONS, "ftol": LEAST_GAIN}
        return minimize(self.loss, self.theta, arguments, "L-BFGS-B", jac=True, bounds=bounds, options=options).x

    def loss(self, theta, rows, scores):
        """Minus the log posterior density of theta, a at its mode, up to a constant; and its gradient."""
        n, noise = len(scores), np.exp(theta[-1])
        levels, trend = rows[:, : self.kernel.width], rows[:, self._trend]
        logs = self.kernel.table(theta[:-1])
        k = self.kernel.between(levels, levels, logs)
        covariance = k + CONSTANT  # from here on in place: a new matrix takes longer than what is done to it
        covariance += trend @ trend.T
        covariance[np.diag_indices(n)] += noise + MIN_NOISE
        factor = stable_cholesky(covariance)
        inverse = cho_solve((factor, True), np.eye(n)).T  # symmetric; the rows in order, as those of k are
        residual = scores - trend @ self._weights
        alpha = inverse @ residual
        amplitude = (residual @ alpha + 2 * RATE) / (n + 2 * SHAPE)
        value = (n / 2 + SHAPE) * np.log(amplitude) + np.log(np.diag(factor)).sum()
        slope = inverse  # d value / d (k + noise I)
        slope -= np.outer(alpha, alpha / amplitude)
        slope *= 0.5
        by_noise, step = np.trace(slope) * noise, 1e-4
        k *= slope
        by_table = (levels.T @ (k @ levels)) * (self.kernel.table(theta[:-1] + step) - logs) / step
        gradient = np.array([*(by_table[block, block].sum() for block in self.kernel.blocks), by_noise])
        off = (theta - self.prior[0]) / self.prior[1]
        return value + off @ off / 2, gradient + off / self.prior[1]


@dataclass(frozen=True)
class Covariance:
    """c + k + U U' between two sets of rows, of shape (len(a), len(b)); and the noise of a measurement."""

    kernel: WalkKernel
    logs: np.ndarray
    trend: slice
    noise: float

    def __call__(self, a, b, dtype=float):
        a, b, width = a.astype(dtype, copy=False), b.astype(dtype, copy=False), self.kernel.width
        k = self.kernel.between(a[:, :width], b[:, :width], self.logs.astype(dtype))
        k += CONSTANT
        if self.trend.stop > self.trend.start:
            k += a[:, self.trend] @ b[:, self.trend].T
        return k

    def diagonal(self, rows):
        """The variances of rows, (m,)."""
        return CONSTANT + 1 + np.square(rows[:, self.trend], dtype=float).sum(axis=1)


@dataclass(frozen=True)
class Factor:
    """L^-1, L L' the covariance of noisy measurements of rows."""

    covariance: Covariance
    rows: np.ndarray
    inverse: np.ndarray

    def extended(self, rows):
        """With m further rows, in O((n + m)^2 m)."""
        n, m = len(self.rows), len(rows)
        if m == 0:
            return self
        across = self.inverse @ self.covariance(self.rows, rows)  # L^-1 k, shape (n, m)
        own = self.covariance(rows, rows) + self.covariance.noise * np.eye(m)
        corner = solve_triangular(stable_cholesky(own - across.T @ across), np.eye(m), lower=True)
        inverse = np.block([[self.inverse, np.zeros((n, m))], [-corner @ (across.T @ self.inverse), corner]])
        return Factor(self.covariance, np.vstack([self.rows, rows]), inverse)


class Posterior:
    """Of the scores, given the residuals z - U w of a factor's rows, and that some more rows are being measured.

    These count as measured with the mean predicted there: they leave the mean, and lower the deviation around them ("kriging
    believer", Ginsbourger, Le Riche and Carraro 2010). ``highest`` is the highest mean of a row measured or running, None
    without any.
    """

    def __init__(self, factor, residuals, weights, running):
        self._covariance, self._measured, self._weights = factor.covariance, factor.rows, weights
        self._alpha = factor.inverse.T @ (factor.inverse @ residuals)
        self.amplitude = (residuals @ self._alpha + 2 * RATE) / (len(residuals) + 2 * SHAPE)
        self._factor = factor.extended(running)
        self._single = self._alpha.astype(np.float32)  # as all covariances below: here is most of the work
        fitted = residuals - factor.covariance.noise * self._alpha + factor.rows[:, factor.covariance.trend] @ weights
        means = np.append(fitted, self.mean(running))
        self.highest = means.max() if len(means) else None

    @functools.cached_property
    def _inverse(self):
        return self._factor.inverse.astype(np.float32, order="F")

    def mean(self, rows):
        """Mean, (m,)."""
        k = self._covariance(rows, self._measured, np.float32)
        return (k @ self._single).astype(float) + rows[:, self._covariance.trend] @ self._weights

    def predict(self, rows):
        """Mean and standard deviation without noise, (m,) each."""
        k = self._covariance(rows, self._factor.rows, np.float32)
        mean = k[:, : len(self._single)] @ self._single
        whitened = strmm(1.0, self._inverse, k.T, lower=1, overwrite_b=1)  # L^-1 k', half the work of a full product
        explained = np.einsum("ij,ij->j", whitened, whitened)
        variance = self.amplitude * np.maximum(self._covariance.diagonal(rows) - explained, 1e-6)
        return mean.astype(float) + rows[:, self._covariance.trend] @ self._weights, np.sqrt(variance)

    def reductions(self, rows):
        """By how much the variances of all rows together would fall if the score of one were known, (m,).

        What is largest stands for the most others (Cohn, Ghahramani and Jordan 1996, "Active learning with statistical
        models").
        """
        across = self._factor.inverse @ self._covariance(self._factor.rows, rows)
        left = self._covariance(rows, rows) - across.T @ across
        return self.amplitude * np.square(left).sum(axis=0) / (np.diag(left) + self._covariance.noise)


def next_fit(count, phase=None):
    """At how many results what was fitted to ``count`` is fitted again: REFIT times as many, at least one more.

    With a phase, 0 to 1, it is the next REFIT^(i + phase), i an integer: models of different phases are fitted in different batches,
    when there are enough results; all in one would make that one slow.
    """
    if phase is None:
        return max(count + 1, int(count * REFIT))
    power = math.floor(math.log(count, REFIT) - phase) + 1 + phase
    return max(count + 1, math.ceil(REFIT**power))


def stable_cholesky(matrix):
    """Lower Cholesky factor, of the matrix with jitter on its diagonal where it takes that; LinAlgError where it takes more."""
    for jitter in JITTERS if np.isfinite(matrix).all() else ():
        try:
            return cholesky(matrix + jitter * np.diag(matrix).mean() * np.eye(len(matrix)) if jitter else matrix, lower=True)
        except LinAlgError:
            continue
    raise LinAlgError("not positive definite")


def evenly(scores, most):
    """Numbers of at most ``most`` scores: all, or the best quarter of ``most`` and an even choice of the rest."""
    order = np.argsort(-scores, kind="stable")
    if len(order) <= most:
        return np.arange(len(order))
    best, rest = order[: most // 4], order[most // 4 :]
    return np.concatenate([best, rest[np.linspace(0, len(rest) - 1, most - len(best)).astype(int)]])
