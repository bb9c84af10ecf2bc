"""WalkGP: Bayesian optimisation whose covariance is the topology of the search space (docs/walkgp.md has the equations).

A proposal is: data -> condition (covariance.py, process.py) -> acquisition (acquisition.py) -> maximise (maximise.py). Throughout

    n, m    number of trials measured, of points asked about
    z       scores of the n trials, (n,): fitness, transformed and standardised (scores.py)
    row     what a point is to the kernel: a one for its level on each axis of each parameter, then its trend columns
    k       correlation of two rows by the axes; U U' by the trend columns, what was measured elsewhere says (transfer.py)
    theta   log correlation lengths of the axes, and last log noise
    a       amplitude: z ~ N(U w, a (k + U U' + noise I))
"""

from .walkgp import WalkGP

__all__ = ["WalkGP"]
