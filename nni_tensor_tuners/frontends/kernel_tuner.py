"""Our searches inside Kernel Tuner: a strategy for ``tune_kernel``.

    from nni_tensor_tuners.frontends.kernel_tuner import strategy

    results, env = kernel_tuner.tune_kernel(..., strategy=strategy("WalkGP"), strategy_options={"max_fevals": 100})

Kernel Tuner compiles, measures, keeps its cache and its budget; the search proposes, one configuration at a time, and is told
what came of each. Legal is what Kernel Tuner enumerates: its restrictions hold, whichever way they are written.
"""

from collections import deque
from contextlib import suppress

import numpy as np
from kernel_tuner.strategies.common import CostFunc, get_options
from kernel_tuner.util import StopCriterionReached

from ..search import check_class_args, create_search
from ..space import ListedSpace, SearchSpace, by_values
from ..study import Objective, Study


def strategy(search="WalkGP", seed=0, **class_args):
    """What ``tune_kernel`` takes as its ``strategy``.

    Its ``strategy_options`` are ``max_fevals`` and ``time_limit``; the search's own arguments are given here. It may be given
    to several calls, each of which begins anew.

    Parameters
    ----------
    search, seed, class_args
        As for `create_search`.

    Raises
    ------
    ValueError
        If there is no such search, or an argument is not what it takes.
    """
    check_class_args(search, seed, **class_args)
    return _Strategy(search, seed, class_args)


class _Strategy:
    def __init__(self, search, seed, class_args):
        self.search, self.seed, self.class_args = search, seed, class_args

    def tune(self, searchspace, runner, tuning_options):
        """What Kernel Tuner calls: the results of all evaluations, as dicts.

        Raises
        ------
        ValueError
            If there is more than one objective, or an option that is none of ours.
        """
        get_options(tuning_options.strategy_options, {}, unsupported=["x0"])
        evaluate = CostFunc(searchspace, tuning_options, runner, snap=False)
        space, native = space_of(searchspace)
        fitness = _fitness(evaluate.objective, evaluate.objective_higher_is_better)

        def measure(config):
            evaluate(native[space.point(config)], check_restrictions=False)
            return fitness(evaluate.results[-1]), None

        study = Study(create_search(self.search, space, seed=self.seed, **self.class_args))
        with suppress(StopCriterionReached):  # the budget is spent
            deque(study.run(measure, searchspace.size), maxlen=0)  # to its end; Kernel Tuner keeps the results
        return evaluate.results


def space_of(searchspace):
    """The space of a Kernel Tuner ``Searchspace``, and its configurations there as tuples, by point.

    Numbers become discrete parameters, anything else choices. Parameters with a single value are left out.
    """
    values = {name: {value: _plain(value) for value in each} for name, each in searchspace.tune_params.items()}
    described = {name: by_values(list(each.values())) for name, each in values.items()}
    parameters = SearchSpace.from_json(described).parameters
    live = [i for i, parameter in enumerate(parameters) if parameter.size > 1] or [0]
    # Values are encoded once each, not once in each of what may be millions of configurations.
    vertices = [{value: parameters[i].encode(plain) for value, plain in values[parameters[i].name].items()} for i in live]
    native = {tuple(encoded[config[i]] for i, encoded in zip(live, vertices)): config for config in searchspace.list}
    return ListedSpace([parameters[i] for i in live], native), native


def _plain(value):
    """A value as JSON has it."""
    return value.item() if isinstance(value, np.generic) else value


def _fitness(objectives, higher_is_better):
    """Result -> fitness, None if it failed."""
    if len(objectives) != 1:
        raise ValueError(f"objectives: our searches take one, got {', '.join(objectives)}")
    (name,), (maximize,) = objectives, higher_is_better
    objective = Objective("maximize" if maximize else "minimize")
    return lambda result: None if "__error__" in result else objective.fitness(_plain(result[name]))
