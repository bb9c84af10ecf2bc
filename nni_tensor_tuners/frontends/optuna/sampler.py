"""The samplers."""

import logging
import random
import threading
from contextlib import suppress

import optuna
from optuna.search_space import IntersectionSearchSpace
from optuna.trial import TrialState

from ...search import Exhausted, check_class_args, create_search
from .space import FIXED, PROPOSED, Space, count_values
from .told import Told

_log = logging.getLogger(__name__)


class UsedUp(optuna.TrialPruned, Exhausted):
    """Every configuration has been proposed. `study.optimize` sees a pruned trial; who asks and tells can catch it."""


class SearchSampler(optuna.samplers.BaseSampler):
    """A sampler that one of our searches drives.

    Every configuration is proposed once, whether it succeeds or not, and by whichever process. A trial has failed that raised,
    gave no finite number, broke a constraint of Optuna's, or was pruned before it reported a value; one that was pruned later
    counts with the last value it reported. What `study.enqueue_trial` leaves open is drawn at random, as the constraints allow.

    Once every configuration has been proposed the study stops, with a line in the log. A trial that is started all the same is
    pruned before it measures anything. Where trials have parameters besides those of the space, these go on at random instead.

    Parameters
    ----------
    search, class_args
        As for `create_search`.
    search_space
        name -> distribution, as Optuna has them. Left out, it is what all completed trials have in common, and until there is
        one, parameters are drawn at random. So are at any time parameters that are not part of it.
    constraints
        Expressions over the parameters of ``search_space`` such as ``"x * y <= 1024"``, which every proposal satisfies.
    seed
        Integer; the same seed and the same results give the same proposals.

    Raises
    ------
    ValueError
        In one line: for an unknown search or argument, a parameter with infinitely many values, a bad constraint.
    """

    def __init__(self, search, search_space=None, constraints=(), seed=0, **class_args):
        check_class_args(search, seed, **class_args)
        self.search, self.constraints, self.seed, self.class_args = search, constraints, seed, class_args
        self.search_space = None if search_space is None else dict(search_space)
        if search_space is None and constraints:
            raise ValueError("constraints: they need search_space, which has the parameters that they are about")
        if search_space is not None and next(Space(self.search_space, constraints).listed(), None) is None:
            raise ValueError("constraints: no configuration satisfies them")
        self._lock = threading.Lock()
        self._forget()

    def infer_relative_search_space(self, study, trial):
        if len(study.directions) > 1:
            raise ValueError(f"{self} takes one objective, this study has {len(study.directions)}")
        if self.search_space is not None:
            return self.search_space
        with self._lock:
            self._attend_to(study)
            space = self._completed.calculate(study)
        if not space:
            space = _in_common_of_failed(study)
        return {name: distribution for name, distribution in space.items() if not distribution.single()}

    def sample_relative(self, study, trial, search_space):
        fixed = {name: value for name, value in trial.system_attrs.get(FIXED, {}).items() if name in search_space}
        if len(fixed) == len(search_space):
            return {}
        with self._lock:
            while True:
                live = self._updated(study, trial, search_space)
                try:
                    config = live.completed(fixed, _mixed(self.seed, trial.number)) if fixed else live.proposed()
                except Exhausted:
                    self._propose(study, trial, {})
                    if live.is_whole() and not fixed:
                        self._refused.add(trial._trial_id)
                        self._stop(study)
                    return {}
                params = live.space.params(config)
                self._propose(study, trial, {n: search_space[n].to_internal_repr(value) for n, value in params.items()})
                # Another process may have proposed the same. Of two that write and then look, one at least sees the other.
                if all(live.space.config(other) != config for other in live.news(_others(study, trial))):
                    return params

    def sample_independent(self, study, trial, param_name, param_distribution):
        if trial._trial_id in self._refused:
            raise UsedUp("every configuration has been proposed")
        if self.search_space is None:
            count_values(param_name, param_distribution)
        elif (given := self.search_space.get(param_name, param_distribution)) != param_distribution:
            raise ValueError(f"parameter '{param_name}': search_space has {given}, the objective suggests {param_distribution}")
        # A generator of its own: processes that share a seed must not draw the same in different trials.
        sampler = optuna.samplers.RandomSampler(seed=_mixed(self.seed, trial.number, param_name))
        return sampler.sample_independent(study, trial, param_name, param_distribution)

    def after_trial(self, study, trial, state, values):
        with self._lock:
            self._attend_to(study)
            live = self._live if trial._trial_id not in self._refused else None
            if live is not None and live.is_whole() and live.space.covers(trial) and live.used_up():
                self._stop(study)

    def _propose(self, study, trial, internal):
        study._storage.set_trial_system_attr(trial._trial_id, PROPOSED, internal)

    def _stop(self, study):
        _log.warning("every configuration has been proposed: the study stops")
        with suppress(RuntimeError):  # not inside `study.optimize`: the next `suggest` raises UsedUp
            study.stop()

    def _updated(self, study, trial, search_space):
        """The search, told what is known of the study's other trials; made anew where it was told what is no longer so."""
        self._attend_to(study)
        trials = _others(study, trial)
        if self._live is None or self._live.space.distributions != search_space or not self._live.update(trials):
            space, minimised = Space(search_space, self.constraints), study.direction == optuna.study.StudyDirection.MINIMIZE
            # Processes that share a seed must not propose the same, nor one that resumes what was proposed before.
            seed = _mixed(self.seed, trial.number) if trial.number else self.seed
            search = create_search(self.search, space.ours, seed=seed, **self.class_args)
            self._live = Told(space, search, minimised, trials, self.search_space is not None)
        return self._live

    def _attend_to(self, study):
        """Forget another study."""
        place = study._storage, study._study_id
        if self._place != place:
            self._forget(place)

    def _forget(self, place=None):
        self._place = place
        self._completed = IntersectionSearchSpace()
        self._live = None
        self._refused = set()  # trials for which no configuration was left

    def __getstate__(self):
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    def __setstate__(self, state):
        vars(self).update(state)
        self._lock = threading.Lock()
        self._forget()


class WalkGPSampler(SearchSampler):
    """WalkGP, a Gaussian process over the graphs of the parameters' values, as a sampler; `SearchSampler` has the arguments.

    >>> optuna.logging.set_verbosity(optuna.logging.WARNING)
    >>> study = optuna.create_study(sampler=WalkGPSampler(seed=0))
    >>> study.optimize(lambda trial: abs(trial.suggest_int("x", 0, 99) - 42), n_trials=30)
    >>> study.best_params
    {'x': 42}
    """

    def __init__(self, search_space=None, constraints=(), seed=0, **class_args):
        super().__init__("WalkGP", search_space, constraints, seed, **class_args)


def _in_common_of_failed(study):
    """name -> distribution of what trials that failed, or were pruned, have in common; nothing once one is complete."""
    over = [each for each in _trials(study) if each.state.is_finished() and each.distributions]
    common = {} if any(each.state == TrialState.COMPLETE for each in over) or not over else over[0].distributions
    for each in over:
        common = {name: distribution for name, distribution in common.items() if each.distributions.get(name) == distribution}
    return common


def _others(study, trial):
    return [each for each in _trials(study) if each.number != trial.number]


def _trials(study):
    # Not the study's own list: Hyperband shows a sampler one of its brackets only.
    return study._storage.get_all_trials(study._study_id, deepcopy=False)


def _mixed(*numbers):
    """A seed from a seed and what tells its uses apart."""
    return random.Random(" ".join(map(str, numbers))).getrandbits(32)
