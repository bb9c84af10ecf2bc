"""What a trial is expected to bring: log EI(x) + failure_weight log P(x succeeds)."""

from dataclasses import dataclass

import numpy as np
from scipy.special import erfcx, ndtr

from .process import Posterior

# The model of failure is asked about this many of the points with the highest expected improvement.
SHORT_LIST = 256
MIN_SUCCESS = 0.02


@dataclass(frozen=True)
class Success:
    """P(x succeeds): ``mean`` + ``unit`` times a posterior mean, between MIN_SUCCESS and 1."""

    posterior: Posterior
    mean: float
    unit: float

    def log_probability(self, rows):
        """Of shape (m,)."""
        return np.log(np.clip(self.mean + self.unit * self.posterior.mean(rows), MIN_SUCCESS, 1.0))


@dataclass(frozen=True)
class Acquisition:
    """Function of rows. The improvement is that over the highest posterior mean; the mean alone where nothing is known.

    Parameters
    ----------
    performance
        A `Posterior` of scores.
    success
        A `Success`; None where nothing has failed.
    failure_weight
        What a unit of log probability of success counts.
    """

    performance: Posterior
    success: Success = None
    failure_weight: float = 0.0

    def __post_init__(self):
        object.__setattr__(self, "incumbent", self.performance.highest)

    def __call__(self, rows):
        """Values of shape (m,); minus infinity off the short list where failures count."""
        mean, deviation = self.performance.predict(rows)
        value = mean if self.incumbent is None else log_expected_improvement(mean, deviation, self.incumbent)
        if self.success is None:
            return value
        best = np.argsort(-value, kind="stable")[:SHORT_LIST]  # the second term is never positive
        weighed = np.full(len(value), -np.inf)
        weighed[best] = value[best] + self.failure_weight * self.success.log_probability(rows[best])
        return weighed


def log_expected_improvement(mean, deviation, incumbent):
    """Log of the expected improvement of normal variables over ``incumbent``; arrays of shape (m,)."""
    u = (mean - incumbent) / deviation
    # Below the incumbent the density is taken out of pdf(u) + u cdf(u), which there underflows and cancels.
    below, above = np.minimum(u, 0.0), np.maximum(u, 0.0)
    left = np.log1p(below * np.sqrt(np.pi / 2) * erfcx(-below / np.sqrt(2))) - (below**2 + np.log(2 * np.pi)) / 2
    right = np.log(above * ndtr(above) + np.exp(-(above**2) / 2) / np.sqrt(2 * np.pi))
    return np.where(u < 0, left, right) + np.log(deviation)
