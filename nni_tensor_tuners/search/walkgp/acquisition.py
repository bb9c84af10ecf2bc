"""What a trial is expected to bring: log EI(x) + failure_weight log P(x succeeds)."""

import numpy as np
from scipy.special import erfcx, ndtr

# Success is asked about for this many of the rows with the highest expected improvement.
SHORT_LIST = 256
MIN_SUCCESS = 0.02


def expected_gain(performance, success=None, failure_weight=0.0):
    """The acquisition, a function of rows; its values are minus infinity off the short list where failures count.

    Parameters
    ----------
    performance
        `Posterior` of scores. The improvement is that over its highest mean; the mean itself where nothing is measured or runs.
    success
        (`Posterior` of success, its zero, its unit); None where nothing has failed.
    """
    incumbent = performance.highest

    def gain(rows):
        mean, deviation = performance.predict(rows)
        value = mean if incumbent is None else log_expected_improvement(mean, deviation, incumbent)
        if success is None:
            return value
        best = np.argsort(-value, kind="stable")[:SHORT_LIST]  # the second term is never positive
        weighed = np.full(len(value), -np.inf)
        weighed[best] = value[best] + failure_weight * log_success(rows[best], *success)
        return weighed

    return gain


def log_success(rows, posterior, zero, unit):
    """Log of the probability that rows succeed, (m,)."""
    return np.log(np.clip(zero + unit * posterior.mean(rows), MIN_SUCCESS, 1.0))


def log_expected_improvement(mean, deviation, incumbent):
    """Log of the expected improvement of normal variables over ``incumbent``; arrays of shape (m,)."""
    u = (mean - incumbent) / deviation
    # Below the incumbent the density is taken out of pdf(u) + u cdf(u), which there underflows and cancels.
    below, above = np.minimum(u, 0.0), np.maximum(u, 0.0)
    left = np.log1p(below * np.sqrt(np.pi / 2) * erfcx(-below / np.sqrt(2))) - (below**2 + np.log(2 * np.pi)) / 2
    right = np.log(above * ndtr(above) + np.exp(-(above**2) / 2) / np.sqrt(2 * np.pi))
    return np.where(u < 0, left, right) + np.log(deviation)
