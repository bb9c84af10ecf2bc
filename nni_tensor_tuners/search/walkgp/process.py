"""Gaussian process regression: hyperparameters fitted to the data, and the posterior given the data and the running trials."""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError, cho_solve, cholesky, solve_triangular
from scipy.optimize import minimize

# Normal priors (mean, standard deviation) of the log correlation lengths (`covariance.correlation`) and of the log noise, the
# noise as a share of the amplitude. Weak: some tens of results outvote them.
LENGTH_PRIOR = (0.0, 0.4)
NOISE_PRIOR = (-4.0, 1.0)
# Share of the variance that is a sum over the axes.
APART = 0.6
MIN_NOISE = 1e-5
# Inverse-gamma prior of the amplitude, shape and rate: about 1, the variance of standardised scores.
AMPLITUDE_PRIOR = (1.0, 1.0)
# Hyperparameters are fitted to at most this many results, the best quarter and an even choice of the rest, in so many iterations.
MAX_FITTED = 256
MAX_ITERATIONS = 15
# They are fitted again when there are this many times as many results as last time.
REFIT = 1.1
# Added to a diagonal in turn, as shares of its mean, until the matrix has a Cholesky factor.
JITTERS = (0.0, 1e-8, 1e-6, 1e-4, 1e-2)


class GaussianProcess:
    """z ~ N(U w, a (k + U U' + noise I)), k the correlation by the axes and U the trend columns of the rows.

    U U' is what is left when the factors b of trends M = U diag(p)^(1/2), b ~ N(w / p^(1/2), a / p), are integrated out
    (universal kriging; Rasmussen and Williams 2006, section 2.7), so that nothing else has to know of them.

    Theta maximises the marginal likelihood times its priors; the amplitude a is put at the mode of its posterior.

    Parameters
    ----------
    encoder
        An `Encoder`.
    kernel
        One of `covariance.KERNELS`.
    trend
        The slice of columns of a row that are its trend.
    weights
        Prior mean w of the trend's factors.
    """

    def __init__(self, encoder, kernel="mixed", trend=slice(0, 0), weights=()):
        self._encoder, self._kernel, self._trend, self._weights = encoder, kernel, trend, np.array(weights, dtype=float)
        self._prior = tuple(map(np.array, zip(*[LENGTH_PRIOR] * len(encoder.axes), NOISE_PRIOR)))  # means, deviations
        self.theta = self._prior[0].copy()
        self._fit_at = 2
        self._factor = None  # of the trials measured, so that a further one costs O(n^2)

    def posterior(self, rows, scores, running):
        """Condition on what was measured; theta is fitted again first if that has grown by a tenth.

        Parameters
        ----------
        rows
            Of shape (n, width and trend).
        scores
            z, of shape (n,).
        running
            Rows of trials not measured yet, of shape (r, width and trend).

        Raises
        ------
        LinAlgError
            If a covariance matrix is not positive definite, in spite of jitter.
        """
        if len(rows) >= self._fit_at:
            self.theta, self._factor = self.fitted(rows, scores), None
            self._fit_at = max(len(rows) + 1, int(len(rows) * REFIT))
        known = 0 if self._factor is None else len(self._factor.rows)
        if not known or not np.array_equal(self._factor.rows, rows[:known]):
            self._factor, known = Factor.empty(self._covariance(), rows.shape[1]), 0
        self._factor = self._factor.extended(rows[known:])
        return Posterior(self._factor, scores - rows[:, self._trend] @ self._weights, self._weights, running)

    def fitted(self, rows, scores):
        """Theta of the highest posterior density that is found from where it is."""
        chosen = evenly(scores, MAX_FITTED)
        mean, deviation = self._prior
        bounds = list(zip(mean - 4 * deviation, mean + 4 * deviation))
        arguments = rows[chosen].astype(float), scores[chosen]
        options = {"maxiter": MAX_ITERATIONS}
        return minimize(self.loss, self.theta, arguments, "L-BFGS-B", jac=True, bounds=bounds, options=options).x

    def loss(self, theta, rows, scores):
        """Minus the log posterior density of theta up to a constant, and its gradient."""
        n = len(scores)
        levels, trend = rows[:, : self._encoder.width], rows[:, self._trend]
        residual = scores - trend @ self._weights
        logs, means = self._encoder.tables(theta[:-1], self._kernel)
        noise = np.exp(theta[-1])
        together, apart = (1 - APART) * np.exp(levels @ logs @ levels.T), APART * levels @ means @ levels.T
        factor = stable_cholesky(together + apart + trend @ trend.T + (noise + MIN_NOISE) * np.eye(n))
        inverse = cho_solve((factor, True), np.eye(n))
        alpha = inverse @ residual
        shape, rate = AMPLITUDE_PRIOR
        amplitude = (residual @ alpha + 2 * rate) / (n + 2 * shape)
        value = (n / 2 + shape) * np.log(amplitude) + np.log(np.diag(factor)).sum()
        slope = 0.5 * (inverse - np.outer(alpha, alpha) / amplitude)  # d value / d (k + noise I)
        step = 1e-4
        shifted_logs, shifted_means = self._encoder.tables(theta[:-1] + step, self._kernel)
        by_table = (levels.T @ ((slope * together) @ levels)) * (shifted_logs - logs) / step
        by_table += APART * (levels.T @ slope @ levels) * (shifted_means - means) / step
        by_length = [by_table[block, block].sum() for block in self._encoder.blocks()]
        mean, deviation = self._prior
        off = (theta - mean) / deviation
        return value + off @ off / 2, np.array([*by_length, np.trace(slope) * noise]) + off / deviation

    def _covariance(self):
        return Covariance(*self._encoder.tables(self.theta[:-1], self._kernel), self._trend, np.exp(self.theta[-1]) + MIN_NOISE)


@dataclass(frozen=True)
class Covariance:
    """k + U U' between two sets of rows, of shape (len(a), len(b)); and the noise of a measurement."""

    logs: np.ndarray
    means: np.ndarray
    trend: slice
    noise: float

    def __call__(self, a, b, dtype=float):
        width = len(self.logs)
        left, right = a[:, :width].astype(dtype), b[:, :width].T.astype(dtype)
        k = (1 - APART) * np.exp((left @ self.logs.astype(dtype)) @ right)
        k += APART * (left @ self.means.astype(dtype)) @ right
        return k + a[:, self.trend].astype(dtype) @ b[:, self.trend].T.astype(dtype)

    def diagonal(self, rows):
        """The variances of rows, of shape (m,)."""
        return 1 + np.square(rows[:, self.trend].astype(float)).sum(axis=1)


@dataclass(frozen=True)
class Factor:
    """L^-1, with L L' the covariance of noisy measurements of rows."""

    covariance: Covariance
    rows: np.ndarray
    inverse: np.ndarray

    @classmethod
    def empty(cls, covariance, width):
        """Of no rows."""
        return cls(covariance, np.zeros((0, width), dtype=np.float32), np.zeros((0, 0)))

    def extended(self, rows):
        """With further rows, in O((n + m)^2 m)."""
        n, m = len(self.rows), len(rows)
        if m == 0:
            return self
        across = self.inverse @ self.covariance(self.rows, rows)  # L^-1 k, shape (n, m)
        own = self.covariance(rows, rows) + self.covariance.noise * np.eye(m)
        corner = solve_triangular(stable_cholesky(own - across.T @ across), np.eye(m), lower=True)
        inverse = np.zeros((n + m, n + m))
        inverse[:n, :n] = self.inverse
        inverse[n:, :n] = -corner @ (across.T @ self.inverse)
        inverse[n:, n:] = corner
        return Factor(self.covariance, np.vstack([self.rows, rows]), inverse)


class Posterior:
    """What is known of scores, given those of some rows, and that some more rows are being measured.

    These lower the deviation and leave the mean ("kriging believer", Ginsbourger, Le Riche and Carraro 2010).

    Parameters
    ----------
    factor
        A `Factor` of the rows measured.
    residuals
        z - U w, of shape (n,).
    weights
        w.
    running
        Rows being measured.
    """

    def __init__(self, factor, residuals, weights, running):
        self._covariance, self._measured, self._weights = factor.covariance, factor.rows, weights
        self._alpha = factor.inverse.T @ (factor.inverse @ residuals)
        shape, rate = AMPLITUDE_PRIOR
        self._amplitude = (residuals @ self._alpha + 2 * rate) / (len(residuals) + 2 * shape)
        self._factor = factor.extended(running)

    @property
    def highest(self):
        """The highest mean of a row measured or running; None without any."""
        return self.mean(self._factor.rows).max() if len(self._factor.rows) else None

    def mean(self, rows):
        """Of shape (m,)."""
        k = self._covariance(rows, self._measured, np.float32)  # single precision: here is most of the work
        return (k @ self._alpha.astype(np.float32)).astype(float) + rows[:, self._covariance.trend] @ self._weights

    def predict(self, rows):
        """Mean and standard deviation, without noise, of shape (m,) each."""
        k = self._covariance(rows, self._factor.rows, np.float32)
        mean = k[:, : len(self._alpha)] @ self._alpha.astype(np.float32)
        explained = np.square(k @ self._factor.inverse.T.astype(np.float32)).sum(axis=1)
        variance = self._amplitude * np.maximum(self._covariance.diagonal(rows) - explained, 1e-6)
        return mean.astype(float) + rows[:, self._covariance.trend] @ self._weights, np.sqrt(variance)

    def reductions(self, rows):
        """By how much the variances of all these rows together would fall if the score of one were known, of shape (m,).

        What is largest stands for the most others, and not at the border (Cohn, Ghahramani and Jordan 1996, "Active learning
        with statistical models").
        """
        across = self._factor.inverse @ self._covariance(self._factor.rows, rows)
        left = self._covariance(rows, rows) - across.T @ across
        return self._amplitude * np.square(left).sum(axis=0) / (np.diag(left) + self._covariance.noise)


def stable_cholesky(matrix):
    """Lower Cholesky factor of a matrix, with jitter on its diagonal where it takes that; LinAlgError where it takes more."""
    if not np.isfinite(matrix).all():
        raise LinAlgError("not finite")
    for jitter in JITTERS:
        try:
            return cholesky(matrix + jitter * np.diag(matrix).mean() * np.eye(len(matrix)), lower=True)
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
