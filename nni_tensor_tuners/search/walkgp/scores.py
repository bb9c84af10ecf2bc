"""From fitness, and from success and failure, to scores that a Gaussian process can explain."""

import numpy as np

# Box-Cox powers to choose from.
POWERS = (0, 1, 2, 3)


def performance_scores(fitness):
    """Fitness, shape (n,), bent by the Box-Cox power that makes it most like a normal sample, compressed below, standardised.

    Powers from 0 (the logarithm, for kernels that differ by orders of magnitude) to 3 (which spreads out a ceiling that many
    come close to); chosen by the profile likelihood (Box and Cox 1964, section 3). Where not all are positive they stay as
    they are. Below the mean scores fall by the logarithm only: how slow a slow kernel is matters little, and it may have been
    a fast one that was disturbed while it was timed.
    """
    scores = fitness / max(np.abs(fitness).max(initial=0), 1e-300)  # the sum of huge values would overflow
    if (fitness > 0).all() and len(fitness):
        logs = np.log(fitness)
        logs -= logs.mean()  # with the geometric mean as unit the Jacobian drops out of the likelihood
        with np.errstate(over="ignore", invalid="ignore"):
            bent = [np.expm1(power * logs) / power if power else logs for power in POWERS]
            spread = [np.var(each) for each in bent]
        scores = bent[int(np.argmin(np.where(np.isfinite(spread), spread, np.inf)))]
    scores = _standardised(scores)
    return _standardised(np.where(scores < 0, -np.log1p(-np.minimum(scores, 0)), scores))


def success_scale(outcomes):
    """Mean and unit of success: a trial's score is (1 or 0 - mean) / unit.

    The mean is as after two successes more and half a failure: a first failure is no reason to stay away from everything.
    """
    mean = (sum(outcomes) + 2) / (len(outcomes) + 2.5)
    return mean, max(0.2, (mean * (1 - mean)) ** 0.5)


def _standardised(scores):
    scores = scores - (scores.mean() if len(scores) else 0)
    deviation = scores.std() if len(scores) else 0
    return scores / deviation if deviation > 1e-12 else np.zeros(len(scores))
