"""A Gaussian process over encoded configurations that grows by one row at a time."""

import numpy as np
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.optimize import minimize

# Normal priors (mean, standard deviation) of the log correlation lengths (see `Axis.correlation`) and of the log noise, the
# noise as a share of the amplitude. Weak: some tens of results outvote them.
LENGTH_PRIOR = (0.0, 1.0)
NOISE_PRIOR = (-5.0, 1.5)
MIN_NOISE = 1e-5
# Inverse-gamma prior of the amplitude, shape and rate: about 1, the variance of standardised scores.
AMPLITUDE_PRIOR = (1.0, 1.0)
# Hyperparameters are fitted to at most this many results, the best quarter and an even choice of the rest.
MAX_FITTED = 256
MAX_ITERATIONS = 15


class GaussianProcess:
    """Scores ~ GP(0, amplitude (k + noise I)), with k the product of the axes' correlations.

    Lengths (one for each axis) and noise maximise the marginal likelihood times their priors; the amplitude is integrated over
    its prior's mode in closed form. The inverse L^-1 of the Cholesky factor is kept, so that a further row costs O(n^2).

    Parameters
    ----------
    encoder
        An `Encoder`.
    kernel
        One of ``KERNELS``.
    """

    def __init__(self, encoder, kernel="mixed"):
        self.encoder = encoder
        self.kernel = kernel
        means, deviations = zip(*[LENGTH_PRIOR] * len(encoder.axes), NOISE_PRIOR)
        self._prior = np.array(means), np.array(deviations)
        self._theta = self._prior[0].copy()  # log lengths, log noise
        self.clear()

    def clear(self):
        """Forget the rows, keep the hyperparameters."""
        self._table = self.encoder.log_table(self._theta[:-1], self.kernel)
        self._rows = np.zeros((0, self.encoder.width), dtype=np.float32)
        self._inverse = np.zeros((0, 0))  # L^-1
        self._weights = np.zeros(0)
        self.amplitude = 1.0

    @property
    def noise(self):
        """Variance of the noise as a share of the amplitude."""
        return np.exp(self._theta[-1]) + MIN_NOISE

    def __len__(self):
        return len(self._rows)

    def fit(self, rows, scores):
        """Maximise the posterior of the hyperparameters from where they are. Forgets the rows.

        Parameters
        ----------
        rows
            Of shape (n, width).
        scores
            Of shape (n,), about standardised.
        """
        chosen = evenly(scores, MAX_FITTED)
        rows, scores = rows[chosen], scores[chosen]
        mean, deviation = self._prior
        found = minimize(
            self._loss,
            self._theta,
            args=(rows.astype(float), scores),
            jac=True,
            method="L-BFGS-B",
            bounds=list(zip(mean - 4 * deviation, mean + 4 * deviation)),
            options={"maxiter": MAX_ITERATIONS},
        )
        self._theta = found.x
        self.clear()

    def shorten(self, other, by):
        """Take the hyperparameters of another process with log lengths less by ``by``. Forgets the rows if they are new."""
        theta = other._theta - np.append(np.full(len(self.encoder.axes), by), 0.0)
        if not np.array_equal(theta, self._theta):
            self._theta = theta
            self.clear()

    def append(self, rows):
        """Add rows; `explain` gives them scores.

        Parameters
        ----------
        rows
            Of shape (m, width).
        """
        n, m = len(self._rows), len(rows)
        own = self._correlation(rows, rows, float) + self.noise * np.eye(m)
        across = self._inverse @ self._correlation(self._rows, rows, float)  # L^-1 k, shape (n, m)
        corner = cholesky(own - across.T @ across, lower=True)
        corner = solve_triangular(corner, np.eye(m), lower=True)
        inverse = np.zeros((n + m, n + m))
        inverse[:n, :n] = self._inverse
        inverse[n:, :n] = -corner @ (across.T @ self._inverse)
        inverse[n:, n:] = corner
        self._inverse = inverse
        self._rows = np.vstack([self._rows, rows])

    def explain(self, scores):
        """Condition on scores of the rows.

        Parameters
        ----------
        scores
            Of shape (len(self),); NaN for a row still being measured, which counts as measured with the mean predicted there
            ("kriging believer": it leaves the mean as it is and lowers the deviation around it).

        Returns
        -------
        Posterior means of the rows, of shape (len(self),).
        """
        pending = np.isnan(scores)
        if pending.any():
            columns = self._inverse[:, pending]
            precision = columns.T @ self._inverse  # rows of K^-1
            scores = scores.copy()
            scores[pending] = -np.linalg.solve(precision[:, pending], precision[:, ~pending] @ scores[~pending])
        self._weights = self.solve(scores)
        shape, rate = AMPLITUDE_PRIOR
        self.amplitude = (scores @ self._weights + 2 * rate) / ((~pending).sum() + 2 * shape)
        return scores - self.noise * self._weights

    def predict(self, rows):
        """Posterior mean and standard deviation, without noise, of shape (m,) each, for rows of shape (m, width)."""
        k = self._correlation(rows, self._rows, np.float32)  # single precision: here is most of the work
        mean = k @ self._weights.astype(np.float32)
        explained = np.square(k @ self._inverse.T.astype(np.float32)).sum(axis=1)
        return mean.astype(float), np.sqrt(self.amplitude * np.maximum(1 - explained, 1e-6).astype(float))

    def reductions(self, rows):
        """By how much the variances of all these rows together would fall if the score of one were known, of shape (m,).

        What is largest stands for the most others, and not at the border (Cohn, Ghahramani and Jordan 1996, "Active
        learning with statistical models").
        """
        across = self._inverse @ self._correlation(self._rows, rows, float)
        covariance = self._correlation(rows, rows, float) - across.T @ across
        return self.amplitude * np.square(covariance).sum(axis=0) / (np.diag(covariance) + self.noise)

    def mean(self, rows):
        """Posterior mean alone, of shape (m,)."""
        return (self._correlation(rows, self._rows, np.float32) @ self._weights.astype(np.float32)).astype(float)

    def solve(self, values):
        """(k + noise I)^-1 times values of the rows, of shape (len(self), anything)."""
        return self._inverse.T @ (self._inverse @ values)

    def _correlation(self, a, b, dtype):
        return np.exp((a.astype(dtype) @ self._table.astype(dtype)) @ b.T.astype(dtype))

    def _loss(self, theta, rows, scores):
        """Minus the log posterior of the hyperparameters, and its gradient."""
        n = len(scores)
        table = self.encoder.log_table(theta[:-1], self.kernel)
        noise = np.exp(theta[-1])
        k = np.exp(rows @ table @ rows.T)
        factor = cholesky(k + (noise + MIN_NOISE) * np.eye(n), lower=True)
        inverse = cho_solve((factor, True), np.eye(n))
        weights = inverse @ scores
        shape, rate = AMPLITUDE_PRIOR
        amplitude = (scores @ weights + 2 * rate) / (n + 2 * shape)
        loss = (n / 2 + shape) * np.log(amplitude) + np.log(np.diag(factor)).sum()
        slope = 0.5 * (inverse - np.outer(weights, weights) / amplitude)  # d loss / d (k + noise I)
        by_table = rows.T @ ((slope * k) @ rows)  # d loss / d table
        step = 1e-4
        shifted = self.encoder.log_table(theta[:-1] + step, self.kernel)
        by_length = [(by_table[block, block] * (shifted - table)[block, block]).sum() / step for block in self.encoder.blocks()]
        gradient = np.array([*by_length, np.trace(slope) * noise])
        mean, deviation = self._prior
        off = (theta - mean) / deviation
        return loss + off @ off / 2, gradient + off / deviation


def evenly(scores, most):
    """Numbers of at most ``most`` scores: all, or the best quarter of ``most`` and an even choice of the rest."""
    order = np.argsort(-scores, kind="stable")
    if len(order) <= most:
        return np.arange(len(order))
    best, rest = order[: most // 4], order[most // 4 :]
    return np.concatenate([best, rest[np.linspace(0, len(rest) - 1, most - len(best)).astype(int)]])
