"""Our searches as samplers of Optuna, for parameters that have finitely many values.

    from nni_tensor_tuners.frontends.optuna import WalkGPSampler

    study = optuna.create_study(direction="maximize", sampler=WalkGPSampler(seed=0))
    study.optimize(objective, n_trials=100)

A sampler needs nothing that the study's storage does not have. Before each proposal the search is told every trial that is over
and which ones are running, in this process or in others: a study can be resumed, and several processes can work on it.
"""

import logging
import math
import random
import threading
from contextlib import suppress
from decimal import Decimal

import optuna
from optuna.distributions import CategoricalDistribution, FloatDistribution
from optuna.search_space import IntersectionSearchSpace
from optuna.trial import TrialState

from ..search import Exhausted, create_search
from ..space import SearchSpace

_log = logging.getLogger(__name__)

# The attribute by which other processes know what a trial measures before it has suggested it: name -> Optuna's internal value.
PROPOSED = "nni_tensor_tuners:proposed"
# Where Optuna keeps what `study.enqueue_trial` was given.
FIXED = "fixed_params"
# A parameter with more values is a mistake: they are listed.
MAX_VALUES = 1_000_000


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
        create_search(search, SearchSpace.from_json({"any": {"_type": "choice", "_value": [0]}}), seed=seed, **class_args)
        self.search, self.constraints, self.seed, self.class_args = search, constraints, seed, class_args
        self.search_space = None if search_space is None else dict(search_space)
        if search_space is None and constraints:
            raise ValueError("constraints: they need search_space, which has the parameters that they are about")
        if search_space is not None and next(_Space(self.search_space, constraints).listed(), None) is None:
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
            _count(param_name, param_distribution)
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
            space, minimised = _Space(search_space, self.constraints), study.direction == optuna.study.StudyDirection.MINIMIZE
            # Processes that share a seed must not propose the same, nor one that resumes what was proposed before.
            seed = _mixed(self.seed, trial.number) if trial.number else self.seed
            search = create_search(self.search, space.ours, seed=seed, **self.class_args)
            self._live = _Live(space, search, minimised, trials, self.search_space is not None)
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


class _Live:
    """A search, and what it has been told of a study's trials.

    A gain is a trial's value, with its sign turned where values are minimised. As long as all gains are negative, as those of
    times are, fitness is the reciprocal of the value: positive, as searches that select in proportion to it need.

    Parameters
    ----------
    space
        A `_Space`.
    search
        One over it that knows nothing.
    minimised
        Whether the lowest value is the best.
    trials
        Those to begin with.
    given
        Whether the space was given, not inferred.
    """

    def __init__(self, space, search, minimised, trials, given):
        self.space, self.search, self.minimised = space, search, minimised
        self._sure, self._covers = given, True  # whether trials have all parameters of the space, and none besides
        self._told = set()  # numbers of trials that are over
        self._open = set()  # points asked or excluded that are not told
        gains = [gain for trial in trials if (gain := self._gain(trial)) is not None]
        self._reciprocal = all(gain < 0 for gain in gains) if gains else None
        self._listing, self._left = space.listed(), None
        self.update(trials)

    def news(self, trials):
        """Those of the trials that were not over when the search was last told."""
        return (trial for trial in trials if trial.number not in self._told)

    def update(self, trials):
        """Tell the search what is new; False, and it is of no more use, if what it was told is no longer so."""
        running = set()
        for trial in self.news(trials):
            self._sure = self._sure or trial.state == TrialState.COMPLETE
            self._covers = self._covers and self.space.covers(trial)
            config = self.space.config(trial)
            if trial.state.is_finished():
                self._told.add(trial.number)
                if config is not None and not self._tell(config, self._gain(trial)):
                    return False
            elif config is not None:
                running.add(self.space.ours.point(config))
        if self._open - running - self.search.results.keys():
            return False  # a trial measured something else than was proposed for it
        for point in sorted(running - self._open, key=repr):
            self.search.exclude(self.space.ours.config(point))
        self._open = running
        return True

    def proposed(self):
        """A configuration that the search proposes; Exhausted if none is left."""
        (config,) = self.search.ask(1)
        self._open.add(self.space.ours.point(config))
        return config

    def completed(self, fixed, seed):
        """A random configuration with the ``fixed`` values, new and legal; Exhausted if there is none."""
        space = self.space.restricted(fixed)
        search = create_search("Random", space, seed=seed)
        for point in self._seen():
            if space.contains(seen := self.space.ours.config(point)):
                search.exclude(seen)
        (config,) = search.ask(1)
        self.search.exclude(config)
        self._open.add(self.space.ours.point(config))
        return config

    def is_whole(self):
        """Whether the space is all that trials have, so that one need not be measured again."""
        return self._sure and self._covers

    def used_up(self):
        """Whether every configuration has been proposed. The space is listed once, as far as the first that was not."""
        seen = self._seen()
        while self._left is None or self._left in seen:
            self._left = next(self._listing, None)
            if self._left is None:
                return True
        return False

    def _seen(self):
        return self._open | self.search.results.keys()

    def _tell(self, config, gain):
        if gain is not None:
            if self._reciprocal is None:
                self._reciprocal = gain < 0
            if self._reciprocal and gain >= 0:
                return False
            gain = -1 / gain if self._reciprocal else gain
        self.search.tell(config, gain)
        return True

    def _gain(self, trial):
        """None where there is none: the trial runs, or has failed."""
        feasible = all(excess <= 0 for excess in getattr(trial, "constraints", {}).values())
        if trial.state not in (TrialState.COMPLETE, TrialState.PRUNED) or trial.value is None or not feasible:
            return None
        return (-trial.value if self.minimised else trial.value) if math.isfinite(trial.value) else None


class _Space:
    """Optuna's distributions as a space of ours.

    Attributes
    ----------
    distributions
        As they were given.
    ours
        The `SearchSpace`.
    """

    def __init__(self, distributions, constraints=()):
        self.distributions, self._constraints = distributions, constraints
        self._parameters = {name: _Parameter(name, each) for name, each in distributions.items()}
        self.ours = self._with({})

    def listed(self):
        """Every legal point once."""
        return self.ours.points(random.Random(0))

    def restricted(self, fixed):
        """The `SearchSpace` of configurations with the given values; Exhausted if one of them is no value of its parameter."""
        try:
            return self._with({name: [self._parameters[name].label(value)] for name, value in fixed.items()})
        except ValueError:
            raise Exhausted from None

    def covers(self, trial):
        """Whether a trial has no parameter besides those of this space, but such as have a single value."""
        return all(name in self._parameters or each.single() for name, each in trial.distributions.items())

    def config(self, trial):
        """The configuration that a trial measures, as ``ours`` has it; None if it is not known or not in this space."""
        known, proposed = {**trial.system_attrs.get(FIXED, {}), **trial.params}, trial.system_attrs.get(PROPOSED, {})
        try:
            return {
                name: each.label(known[name]) if name in known else each.at(proposed[name])
                for name, each in self._parameters.items()
            }
        except (KeyError, ValueError):
            return None

    def params(self, config):
        """The values that Optuna has for a configuration of ``ours``."""
        return {name: each.value(config[name]) for name, each in self._parameters.items()}

    def _with(self, labels):
        described = {n: {"_type": each.kind, "_value": labels.get(n, each.labels)} for n, each in self._parameters.items()}
        return SearchSpace.from_json(described, self._constraints)


class _Parameter:
    """A distribution of Optuna's as a parameter of ours.

    Attributes
    ----------
    labels
        Its values, as ours has them, in Optuna's order: categories that are no plain values are their positions.
    kind
        "discrete", of numbers, also where they are categories listed in their order; "choice" of others.
    """

    def __init__(self, name, distribution):
        count = _count(name, distribution)
        self.distribution, self._choices = distribution, None
        if isinstance(distribution, CategoricalDistribution):
            self.labels = list(distribution.choices)
            if any(distribution.to_internal_repr(value) != i for i, value in enumerate(self.labels)):
                raise ValueError(f"parameter '{name}': values that are equal in {self.labels}")
            if not all(value is None or isinstance(value, (bool, int, float, str)) for value in self.labels):
                self._choices, self.labels = self.labels, list(range(count))
            ordered = self._choices is None and _in_order(self.labels)
            self.kind = "discrete" if ordered else "choice"
        else:
            # In decimals, as Optuna has it: 0.1 and two steps of 0.1 are 0.3.
            low, step = Decimal(str(distribution.low)), Decimal(str(distribution.step or 1))
            number = float if isinstance(distribution, FloatDistribution) else int
            self.labels = [number(low + i * step) for i in range(count)]
            self.kind = "discrete"

    def label(self, value):
        """What ours has for a value of Optuna's; ValueError if it is none of this parameter's."""
        return self.at(self.distribution.to_internal_repr(value))

    def at(self, internal):
        """What ours has for an internal value of Optuna's; ValueError if it is none of this parameter's."""
        position = internal
        if not isinstance(self.distribution, CategoricalDistribution):
            position = (internal - self.distribution.low) / (self.distribution.step or 1)
        if not math.isclose(position, round(position), abs_tol=1e-6) or not 0 <= round(position) < len(self.labels):
            raise ValueError(f"{internal} is no value of {self.distribution}")
        return self.labels[round(position)]

    def value(self, label):
        """What Optuna has for a label."""
        return label if self._choices is None else self._choices[label]


def _in_order(values):
    """Whether values are finite numbers that are listed in rising or in falling order."""
    if any(isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) for value in values):
        return False
    return list(values) in (sorted(values), sorted(values, reverse=True))


def _count(name, distribution):
    """How many values a parameter has; ValueError that names it if they cannot be listed."""
    if isinstance(distribution, CategoricalDistribution):
        return len(distribution.choices)
    if not hasattr(distribution, "low"):
        raise ValueError(f"parameter '{name}': expected a distribution of Optuna's, got {distribution!r}")
    if isinstance(distribution, FloatDistribution) and distribution.step is None and not distribution.single():
        raise ValueError(
            f"parameter '{name}': a float without a step has infinitely many values; give it a step, or suggest categories"
        )
    step = Decimal(str(distribution.step or 1))
    count = int((Decimal(str(distribution.high)) - Decimal(str(distribution.low))) / step) + 1
    if count > MAX_VALUES:
        raise ValueError(f"parameter '{name}': {count} values, allowed are {MAX_VALUES}; a larger step leaves fewer")
    return count


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
