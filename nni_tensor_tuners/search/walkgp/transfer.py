"""What was measured elsewhere, as trends of the scores here.

A source s is learned by processes of its own, of performance and of success. Their posterior means m_s are trends here,

    z = sum_s b_s r_s m_s(x) + f(x),        b_s ~ N(1 / c_s, a / (P c_s)),

and the process integrates their factors b out (`process.GaussianProcess`). c_s is how many of the sources say the same as s,
the sum over them of correlation where positive: three copies of a source have together the mean 1 and the variance a / P of
one. r_s is 1 for performance; for success it is F / (F + P) where F trials failed there: a model of two
failures says much about where nothing failed, and whoever stays away from there never hears that it is wrong.
"""

from typing import NamedTuple

import numpy as np

from .process import GaussianProcess, Posterior, evenly
from .scores import performance_scores, success_scale

# A source is learned from at most this many trials there.
MAX_SOURCE = 500
# P: so many trials here weigh as much as the expectation that a source is right.
SOURCE_TRIALS = 4.0


class Source(NamedTuple):
    """Rows measured elsewhere, the posteriors of performance and of success there (None where there is nothing to learn), and
    how many trials failed."""

    rows: np.ndarray
    performance: Posterior
    success: Posterior
    failures: int

    @property
    def share(self):
        """r of success."""
        return self.failures / (self.failures + SOURCE_TRIALS)


def learn(kernel, rows, fitness):
    """The `Source` of rows and their fitness, a list; None where a trial failed."""
    succeeded = np.array([value is not None for value in fitness], dtype=bool)
    known = np.array([value for value in fitness if value is not None], dtype=float)
    zero, unit = success_scale(succeeded)
    return Source(
        rows,
        _explained(kernel, rows[succeeded], performance_scores(known)) if len(known) > 1 else None,
        None if succeeded.all() else _explained(kernel, rows, (succeeded - zero) / unit),
        int((~succeeded).sum()),
    )


def trend_of(posteriors, rows, shares=None):
    """Function from rows to trend columns U, (m, columns), and the mean w of their factors.

    ``rows`` tell who says the same; ``shares`` are the r of the posteriors, by default 1.
    """
    if not posteriors:
        return lambda rows: np.zeros((len(rows), 0), dtype=np.float32), np.zeros(0)
    shares = np.ones(len(posteriors)) if shares is None else shares
    means = np.array([posterior.mean(rows) for posterior in posteriors])
    means -= means.mean(axis=1, keepdims=True)
    length = np.linalg.norm(means, axis=1)
    alike = means @ means.T / np.maximum(np.outer(length, length), 1e-12)
    np.fill_diagonal(alike, 1)
    copies = np.maximum(alike, 0).sum(axis=1)
    precision = SOURCE_TRIALS * copies

    def trend(rows):
        columns = [share * posterior.mean(rows) for share, posterior in zip(shares, posteriors)]
        return (np.transpose(columns) / np.sqrt(precision)).astype(np.float32)

    return trend, np.sqrt(precision) / copies


def _explained(kernel, rows, scores):
    chosen = evenly(scores, MAX_SOURCE)
    return GaussianProcess(kernel).posterior(rows[chosen], scores[chosen], rows[:0])
