"""Our searches as samplers of Optuna, for parameters that have finitely many values.

    from nni_tensor_tuners.frontends.optuna import WalkGPSampler

    study = optuna.create_study(direction="maximize", sampler=WalkGPSampler(seed=0))
    study.optimize(objective, n_trials=100)

A sampler needs nothing that the study's storage does not have. Before each proposal the search is told every trial that is over
and which ones are running, in this process or in others: a study can be resumed, and several processes can work on it.
"""

from .sampler import SearchSampler, UsedUp, WalkGPSampler

__all__ = ["SearchSampler", "UsedUp", "WalkGPSampler"]
