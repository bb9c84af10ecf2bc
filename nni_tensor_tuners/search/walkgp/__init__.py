"""WalkGP: Bayesian optimisation whose covariance is the topology of the search space (docs/walkgp.md has the equations).

A proposal: data (scores.py, transfer.py, program_sources.py) -> condition (covariance.py, process.py) -> acquisition.py ->
maximise.py, programs.py. Throughout

    n, m    numbers of trials measured, and of points asked about
    row     a point as the model sees it, float32: a one for its level on every axis, then its trend columns U; rows: (n, width)
    z       scores of the n trials, (n,): fitness bent, standardised
    theta   log correlation lengths of the axes, log noise
    a       amplitude; z ~ N(U w, a (k + U U' + noise I))
"""

from .walkgp import WalkGP

__all__ = ["WalkGP"]
