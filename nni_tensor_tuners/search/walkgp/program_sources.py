"""What was measured of programs elsewhere, of any operators, shapes and devices: a trend of the scores of programs here."""

import numpy as np
from scipy.linalg import cho_solve, cholesky

from .process import CONSTANT, evenly
from .scores import performance_scores

# The likeliest of these are taken: lengths, in deviations of the features, and the noise as a share of the amplitude.
LENGTHS = (0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0)
NOISES = (0.03, 0.1, 0.2, 0.3, 0.5, 1.0)
# All sources together are learned from at most this many trials, an equal share of each.
MOST = 1000


class ProgramSources:
    """A Gaussian process over features of programs, each source's scores standardised:

        z ~ N(0, a (c + k + noise I)),    k(x, x') = exp(-d^2 / 2 length^2),
        d^2 the mean over the features of their squared differences, in their deviations.

    Far from all that was measured it says what it says of an unknown program, where trees would go on as at their border: those
    of another operator may be anywhere. The constant c is that of `process.GaussianProcess`, for the same reason.

    Parameters
    ----------
    histories
        A list of (features, fitness) for each source; None where a trial failed, of which nothing is learned.

    Raises
    ------
    ValueError
        If no two trials of one succeeded, or if features are not all of one length.
    """

    def __init__(self, histories):
        succeeded = [[(row, fitness) for row, fitness in history if fitness is not None] for history in histories]
        telling = [each for each in succeeded if len(each) > 1]
        if not telling:
            raise ValueError("transfer: fewer than two trials succeeded there")
        try:
            features = np.array([row for each in telling for row, _ in each], dtype=float)
        except (TypeError, ValueError):
            raise ValueError("transfer: expected features of programs, all of one length") from None
        scores = [performance_scores(np.array([fitness for _, fitness in each], dtype=float)) for each in telling]
        most = max(2, MOST // len(scores))
        starts = np.cumsum([0, *map(len, scores)])
        chosen = np.concatenate([start + evenly(each, most) for start, each in zip(starts, scores)])
        features, scores = features[chosen], np.concatenate(scores)[chosen]
        deviation = features.std(axis=0)
        self._telling = deviation > 1e-9 * np.abs(features).max(axis=0)
        self._zero, self._unit = features.mean(axis=0)[self._telling], deviation[self._telling]
        self._rows = self._standardised(features)
        squares = self._squared_distances(self._rows)
        covariances = ((length, _covariance(squares, length)) for length in LENGTHS)
        fits = ((length, *_fit(each + noise * np.eye(len(scores)), scores)) for length, each in covariances for noise in NOISES)
        self._length, _, self._weights = max(fits, key=lambda fit: fit[1])

    def mean(self, features):
        """The posterior mean of the scores of programs with some features, (m, d): (m,)."""
        squares = self._squared_distances(self._standardised(features))
        return _covariance(squares, self._length) @ self._weights

    def _standardised(self, features):
        return (np.asarray(features, dtype=float)[:, self._telling] - self._zero) / self._unit

    def _squared_distances(self, rows):
        """From rows to those measured, (m, n)."""
        squares = np.square(rows).sum(axis=1)[:, None] + np.square(self._rows).sum(axis=1) - 2 * rows @ self._rows.T
        return np.maximum(squares, 0) / max(1, rows.shape[1])


def _covariance(squares, length):
    return CONSTANT + np.exp(-squares / (2 * length**2))


def _fit(covariance, scores):
    """Log likelihood of scores z, the amplitude at its mode, up to a constant; and K^-1 z."""
    factor = cholesky(covariance, lower=True)
    weights = cho_solve((factor, True), scores)
    amplitude = max(scores @ weights, 1e-12) / len(scores)
    return -len(scores) / 2 * np.log(amplitude) - np.log(np.diag(factor)).sum(), weights
