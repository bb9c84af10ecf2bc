"""Nested choices: parameters that are there only with some branches of a choice, as NNI writes them with ``_name``.

A space holds a nested choice flat: a `Branches` parameter for the choice itself, and a `Conditional` one for each parameter of
its branches. What two branches have alike, by name and by values, is one parameter, so that a search that changes the branch
can keep it, and that a model learns about it in both.
"""

import json

from .choice import Choice
from .parameter import Parameter

NAME = "_name"


class Branches(Choice):
    """Which branch of a nested choice is taken; its values are the branches' names.

    >>> Branches("schedule", ["tiled", "naive"]).name
    'schedule._name'
    """

    def __init__(self, name, branches):
        super().__init__(f"{name}.{NAME}", branches)


def chooses(parameter):
    """Whether a parameter chooses the branch of a nested choice."""
    return isinstance(parameter.parameter if isinstance(parameter, Conditional) else parameter, Branches)


class Conditional(Parameter):
    """A parameter that is active in some branches of a nested choice.

    Its vertices are those of the parameter, and None where it is not active; `size` counts the former only. No move, sample or
    walk leads to None or away from it: whether it is active the branch decides (`SearchSpace.settled`).

    Parameters
    ----------
    parameter
        What it is where it is active.
    parent
        The parameter, a `Branches` or a `Conditional` of one, that chooses the branch.
    branches
        The numbers of the branches that have it.
    """

    def __init__(self, parameter, parent, branches):
        self.parameter, self.parent, self.branches = parameter, parent, frozenset(branches)
        self.name, self.size, self.moves = parameter.name, parameter.size, parameter.moves

    def sample(self, rng):
        return self.parameter.sample(rng)

    def sample_other(self, vertex, rng):
        return None if vertex is None else self.parameter.sample_other(vertex, rng)

    def unrank(self, index):
        return self.parameter.unrank(index)

    def origin(self):
        return self.parameter.origin()

    def move(self, vertex, index):
        return None if vertex is None else self.parameter.move(vertex, index)

    def neighbours(self, vertex):
        return [] if vertex is None else self.parameter.neighbours(vertex)

    def step(self, vertex, rng):
        return None if vertex is None else self.parameter.step(vertex, rng)

    def walk(self, vertex, q, rng):
        return None if vertex is None else self.parameter.walk(vertex, q, rng)

    def walk_distribution(self, vertex, q):
        return {None: 1.0} if vertex is None else self.parameter.walk_distribution(vertex, q)

    def features(self, vertex):
        return self._or_zeros(self.parameter.features, vertex)

    def tree_features(self, vertex):
        return self._or_zeros(self.parameter.tree_features, vertex)

    def features_of_value(self, value):
        return self.parameter.features_of_value(value)

    def encode(self, value):
        return self.parameter.encode(value)

    def decode(self, vertex):
        return self.parameter.decode(vertex)

    def nearest(self, value):
        return self.parameter.nearest(value)

    def to_json(self):
        return self.parameter.to_json()

    def axes(self, divisibility=True):
        return [axis._replace(optional=True) for axis in self.parameter.axes(divisibility)]

    def _or_zeros(self, features, vertex):
        return [0.0] * len(features(self.origin())) if vertex is None else features(vertex)


def is_nested(spec):
    """Whether the JSON of a parameter is that of a nested choice."""
    values = spec.get("_value") if isinstance(spec, dict) and spec.get("_type") == "choice" else None
    return isinstance(values, list) and any(isinstance(value, dict) and NAME in value for value in values)


def read(name, spec, read_plain, parent=None, branches=()):
    """The flat parameters of one parameter's JSON, each after the one that decides whether it is active.

    Parameters
    ----------
    name
        Its name, with those of the choices around it before it: ``schedule.X``.
    spec
        ``{"_type": ..., "_value": ...}``.
    read_plain
        Function of name and spec, for those that are not nested.
    parent, branches
        As for `Conditional`; no parent at the top.

    Raises
    ------
    ValueError
        That names the parameter.
    """
    if not is_nested(spec):
        plain = read_plain(name, spec)
        return [plain if parent is None else Conditional(plain, parent, branches)]
    values = spec["_value"]
    for value in values:
        if not isinstance(value, dict) or not isinstance(value.get(NAME), str) or not value[NAME]:
            raise ValueError(f"search space parameter '{name}': a nested choice needs a {NAME} in every value, got {value!r}")
    chooser = Branches(name, [value[NAME] for value in values])
    chooser = chooser if parent is None else Conditional(chooser, parent, branches)
    shared = {}  # (name, what it is) -> the branches that have it
    for number, value in enumerate(values):
        for key, inner in value.items():
            if key != NAME:
                _check_name(name, key)
                shared.setdefault((key, json.dumps(inner, sort_keys=True)), (inner, []))[1].append(number)
    children = [
        child
        for (key, _), (inner, numbers) in shared.items()
        for child in read(f"{name}.{key}", inner, read_plain, chooser, numbers)
    ]
    return [chooser, *children]


def _check_name(name, key):
    if not isinstance(key, str) or not key or "." in key or key.startswith("_"):
        raise ValueError(
            f"search space parameter '{name}': {key!r} cannot be the name of a branch's parameter; "
            "it must not start with '_' nor have a '.'"
        )


def flatten(config):
    """A configuration's values by the names of a space's flat parameters.

    >>> flatten({"schedule": {"_name": "tiled", "X": [4, 2]}, "unroll": 0})
    {'schedule._name': 'tiled', 'schedule.X': [4, 2], 'unroll': 0}
    """
    flat = {}
    for name, value in config.items():
        if isinstance(value, dict) and NAME in value:
            flat[f"{name}.{NAME}"] = value[NAME]
            inner = {f"{name}.{key}": each for key, each in value.items() if key != NAME}
            flat.update(flatten(inner))
        else:
            flat[name] = value
    return flat
