"""What was measured elsewhere, as trends of the scores here.

A source s is learned by processes of its own, of performance and of success. Their posterior means m_s are trends here,

    z = b_0 + sum_s b_s m_s(x) + f(x),        b_s ~ N(1 / c_s, a / (P c_s)),        b_0 ~ N(0, a / P_0),

and a process integrates their factors b out (`process.GaussianProcess`). c_s says how many of the sources say the same as s, the
sum over them of correlation where positive: three copies of a source have together the mean 1 and the variance a / P of one.
b_0 is there because scores are 0 in the mean over the trials here, and m_s over those there: trials that follow a good source
are all good ones.
"""

from typing import NamedTuple

import numpy as np

from .process import GaussianProcess, evenly
from .scores import performance_scores, success_scale

# A source is learned from at most this many trials there.
MAX_SOURCE = 500
# P: so many trials here weigh as much as the expectation that a source is right. P_0: the same of the constant.
SOURCE_TRIALS, OFFSET_TRIALS = 4.0, 10.0


class Trend(NamedTuple):
    """Functions of rows and their Gaussian factors.

    Attributes
    ----------
    columns
        Posteriors; last, where there are any, a one is understood.
    scale
        Their standard deviations in units of a^(1/2), of shape (columns,).
    weights
        Prior means of the scaled factors, w of `process.GaussianProcess`.
    """

    sources: tuple = ()
    scale: np.ndarray = np.zeros(0)
    weights: np.ndarray = np.zeros(0)

    def __call__(self, rows):
        """U, of shape (m, columns)."""
        if not self.sources:
            return np.zeros((len(rows), 0), dtype=np.float32)
        columns = [*(source.mean(rows) for source in self.sources), np.ones(len(rows))]
        return (np.transpose(columns) * self.scale).astype(np.float32)


def trend_of(sources, rows):
    """The `Trend` of posteriors; rows are where it is looked at which of them say the same."""
    if not sources:
        return Trend()
    columns = np.array([source.mean(rows) for source in sources])
    columns = columns - columns.mean(axis=1, keepdims=True)
    length = np.linalg.norm(columns, axis=1)
    alike = columns @ columns.T / np.maximum(np.outer(length, length), 1e-12)
    np.fill_diagonal(alike, 1)
    copies = np.maximum(alike, 0).sum(axis=1)
    scale = np.append(1 / np.sqrt(SOURCE_TRIALS * copies), 1 / np.sqrt(OFFSET_TRIALS))
    return Trend(tuple(sources), scale, np.append(1 / copies / scale[:-1], 0.0))


def learn(encoder, kernel, rows, fitness):
    """Posteriors of performance and of success of a source, None where there is nothing to learn.

    Parameters
    ----------
    rows
        Of shape (n, width).
    fitness
        A list; None where a trial failed.
    """
    succeeded = np.array([value is not None for value in fitness])
    performance = success = None
    if succeeded.sum() > 1:
        scores = performance_scores(np.array([value for value in fitness if value is not None], dtype=float))
        performance = _explained(encoder, kernel, rows[succeeded], scores)
    if not succeeded.all():
        mean, unit = success_scale(succeeded)
        success = _explained(encoder, kernel, rows, (succeeded - mean) / unit)
    return performance, success


def _explained(encoder, kernel, rows, scores):
    chosen = evenly(scores, MAX_SOURCE)
    return GaussianProcess(encoder, kernel).posterior(rows[chosen], scores[chosen], rows[:0])
