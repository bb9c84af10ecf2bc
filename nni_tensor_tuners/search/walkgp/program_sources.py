"""What was measured of programs elsewhere, of any operators, shapes and devices: a trend of the scores of programs here."""

import numpy as np

from .process import CONSTANT, evenly
from .scores import performance_scores

# What to choose from: lengths, in deviations of the features, and the noise as a share of the amplitude.
LENGTHS = (0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0)
NOISES = (0.01, 0.03, 0.1, 0.3, 1.0)
# All sources together are learned from at most this many trials, an equal share of each.
MOST = 1000


class ProgramSources:
    """A Gaussian process over features of programs, each source's scores standardised:

        z ~ N(0, a (c + k + noise I)),    k(x, x') = exp(-d^2 / 2 length^2),
        d^2 the mean over the features of their squared differences, in their deviations.

    Far from all that was measured it says what it says of an unknown program, where trees would go on as at their border: those
    of another operator may be anywhere. The constant c is that of `process.GaussianProcess`, for the same reason.

    Length and noise are those by which each source is foretold best from the others, a single one's trials each from the others:
    what is wanted is what sources say of another one. The likeliest explain more of the sources than holds elsewhere. Two log
    densities of a source's scores count alike: that of each by itself, before any trial there, and that of all together, in which
    trials there tell of one another.

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
        scores = [performance_scores(np.array([fitness for _, fitness in each], dtype=float)) for each in telling]
        chosen = [evenly(each, max(2, MOST // len(scores))) for each in scores]
        try:
            features = np.array([each[i][0] for each, numbers in zip(telling, chosen) for i in numbers], dtype=float)
        except (TypeError, ValueError):
            raise ValueError("transfer: expected features of programs, all of one length") from None
        scores = np.concatenate([each[numbers] for each, numbers in zip(scores, chosen)])
        ends = np.cumsum([len(numbers) for numbers in chosen])
        parts = np.split(np.arange(len(scores)), ends[:-1]) if len(ends) > 1 else np.arange(len(scores))[:, None]
        deviation = features.std(axis=0)
        self._telling = deviation > 1e-9 * np.abs(features).max(axis=0)
        self._zero, self._unit = features.mean(axis=0)[self._telling], deviation[self._telling]
        self._rows = self._standardised(features)
        squares = self._squared_distances(self._rows)
        fits = ((length, *fit) for length in LENGTHS for fit in _fits(_covariance(squares, length), scores, parts))
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


def _fits(covariance, scores, parts):
    """For each noise: how well each part of the scores is foretold from the others, see `ProgramSources`; and K^-1 z, noise in K.

    Given the others, part B is off by (K^-1)_BB^-1 (K^-1 z)_B, of covariance a (K^-1)_BB^-1 (Rasmussen and Williams 2006,
    section 5.4.2, for parts), a at its mode. Log densities are up to a constant.
    """
    values, vectors = np.linalg.eigh(covariance)
    for noise in NOISES:
        scale = 1 / (np.maximum(values, 0) + noise)
        weights = vectors @ (scale * (vectors.T @ scores))
        precisions = [(vectors[part] * scale) @ vectors[part].T for part in parts]
        inverses = [np.linalg.inv(precision) for precision in precisions]
        off = np.concatenate([inverse @ weights[part] for inverse, part in zip(inverses, parts)])
        variances = np.concatenate([np.diag(inverse) for inverse in inverses])
        squares = np.maximum([np.square(off) @ (1 / variances), weights @ off], 1e-12)  # 0 where all scores are
        logs = sum(np.linalg.slogdet(precision)[1] for precision in precisions) - np.log(variances).sum()
        yield (logs - len(scores) * np.log(squares).sum()) / 2, weights
