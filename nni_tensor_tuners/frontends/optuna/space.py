"""Optuna's distributions as a space of ours."""

import math
import random
from decimal import Decimal

from optuna.distributions import CategoricalDistribution, FloatDistribution

from ...search import Exhausted
from ...space import SearchSpace

# The attribute by which other processes know what a trial measures before it has suggested it: name -> Optuna's internal value.
PROPOSED = "nni_tensor_tuners:proposed"
# Where Optuna keeps what `study.enqueue_trial` was given.
FIXED = "fixed_params"
# A parameter with more values is a mistake: they are listed.
MAX_VALUES = 1_000_000


class Space:
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
        self._parameters = {name: Parameter(name, each) for name, each in distributions.items()}
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


class Parameter:
    """A distribution of Optuna's as a parameter of ours.

    Attributes
    ----------
    labels
        Its values, as ours has them, in Optuna's order: categories that are no plain values are their positions.
    kind
        "discrete", of numbers, also where they are categories listed in their order; "choice" of others.
    """

    def __init__(self, name, distribution):
        count = count_values(name, distribution)
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


def count_values(name, distribution):
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


def _in_order(values):
    """Whether values are finite numbers that are listed in rising or in falling order."""
    if any(isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) for value in values):
        return False
    return list(values) in (sorted(values), sorted(values, reverse=True))
