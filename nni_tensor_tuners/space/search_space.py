"""The product of several parameters, with constraints, read from NNI search-space JSON."""

from collections import deque
from math import gcd, prod

from .choice import Choice
from .constraints import Constraint
from .discrete import Discrete
from .factor import Factor
from .parameter import is_integer
from .permutation import Permutation

# Rejection sampling gives up after this many draws in a row that break a constraint, and systematic search takes over.
MAX_REJECTIONS = 10_000
# How many points around the untiled configuration are looked at for a legal one.
MAX_START_POINTS = 20_000
# randint lists its values; a range longer than this is a mistake, not a tuning parameter.
MAX_RANDINT = 1_000_000


class SearchSpace:
    """All configurations of a set of parameters that satisfy every constraint.

    A *configuration* is a dict name -> plain value, as NNI carries it; its *point* is the tuple of the parameters' vertices,
    hashable and cheap, which is what searches work on.

    >>> space = SearchSpace.from_json({"X": {"_type": "factor", "_value": [8, 2]}}, constraints=["X[0] <= 4"])
    >>> space.size
    4
    >>> space.contains({"X": [8, 1]})
    False
    """

    def __init__(self, parameters, constraints=()):
        self.parameters = list(parameters)
        self.names = [parameter.name for parameter in self.parameters]
        if isinstance(constraints, str):
            raise ValueError(f"constraints: expected a list of expressions, got the string {constraints!r}")
        self.constraints = [Constraint(text, self.names) for text in constraints or ()]
        self._position = {name: position for position, name in enumerate(self.names)}
        self._checks = [(c, [(name, self._position[name]) for name in sorted(c.names)]) for c in self.constraints]
        self._constrained = sorted({reads for _, names in self._checks for reads in names})
        first = tuple(parameter.unrank(0) for parameter in self.parameters)
        self.is_legal(first)  # an expression that does not fit its parameters fails here, not in the middle of a search

    @classmethod
    def from_json(cls, search_space, constraints=()):
        """Read NNI search-space JSON: types factor, permutation, discrete, choice, and NNI's randint.

        Raises
        ------
        ValueError
            With one line that names the bad parameter or constraint and says what is allowed.
        """
        if not isinstance(search_space, dict) or not search_space:
            raise ValueError("search space: expected a non-empty JSON object of parameters")
        return cls([_read_parameter(name, spec) for name, spec in search_space.items()], constraints)

    def to_json(self):
        """The parameters as NNI search-space JSON (the constraints are not part of it)."""
        return {parameter.name: parameter.to_json() for parameter in self.parameters}

    @property
    def size(self):
        """Exact number of configurations before constraints."""
        return prod(parameter.size for parameter in self.parameters)

    def sample(self, rng):
        """Draw a configuration uniformly from those that satisfy the constraints.

        Raises
        ------
        ValueError
            If no configuration satisfies the constraints.
        """
        point = self.random_point(rng)
        if point is None:  # too rare for rejection: any legal configuration, no longer uniformly
            point = next(self.points(rng), None)
        if point is None:
            raise ValueError("search space: no configuration satisfies the constraints")
        return self.config(point)

    def contains(self, config):
        """Whether ``config`` gives every parameter one of its values, names no others, and satisfies the constraints."""
        try:
            return self.is_legal(self.point(config))
        except ValueError:
            return False

    def neighbours(self, config):
        """Every configuration that satisfies the constraints and differs from ``config`` by one edge in one parameter."""
        return [self.config(point) for point in self.neighbouring_points(self.point(config))]

    def walk(self, config, q, rng):
        """Mutate ``config`` by a q-random walk in every parameter (OpEvo section 4.3), given that the constraints hold."""
        point = self.point(config)
        if not self.is_legal(point):
            raise ValueError(f"search space: {config} breaks a constraint")
        while not self.is_legal(walked := self.walk_point(point, q, rng)):
            pass  # ends: the walk that takes no step is legal and has probability (1 - q)^parameters
        return self.config(walked)

    # Points: what searches work on.

    def point(self, config):
        """The point of a configuration; ValueError that names the parameter if it has a value outside the space."""
        if not isinstance(config, dict) or set(config) != set(self.names):
            given = ", ".join(map(str, config)) if isinstance(config, dict) else repr(config)
            raise ValueError(f"configuration: expected the parameters {', '.join(self.names)}, got {given or 'none'}")
        return tuple(parameter.encode(config[parameter.name]) for parameter in self.parameters)

    def config(self, point):
        """The configuration of a point."""
        return {parameter.name: parameter.decode(vertex) for parameter, vertex in zip(self.parameters, point)}

    def is_legal(self, point):
        """Whether a point satisfies every constraint."""
        values = {name: self.parameters[i].decode(point[i]) for name, i in self._constrained}
        return all(constraint.holds(values) for constraint, _ in self._checks)

    def random_point(self, rng):
        """A uniformly random legal point, or None if ``MAX_REJECTIONS`` draws in a row broke a constraint."""
        for _ in range(MAX_REJECTIONS):
            point = tuple(parameter.sample(rng) for parameter in self.parameters)
            if self.is_legal(point):
                return point
        return None

    def walk_point(self, point, q, rng):
        """A q-random walk in every parameter, the constraints not looked at."""
        return tuple(parameter.walk(vertex, q, rng) for parameter, vertex in zip(self.parameters, point))

    def neighbouring_points(self, point):
        """The legal points one edge away."""
        return [candidate for candidate in self._adjacent(point) if self.is_legal(candidate)]

    def starting_point(self, rng):
        """The configuration without multi-level tiling, as a point (OpEvo appendix B); the nearest legal one where a constraint
        forbids it.

        Nearest by edges, looked for among ``MAX_START_POINTS`` points; a random one if there is none; None if none is legal.
        """
        origin = tuple(parameter.origin() for parameter in self.parameters)
        reached, frontier = {origin}, deque([origin])
        while frontier and len(reached) < MAX_START_POINTS:
            point = frontier.popleft()
            if self.is_legal(point):
                return point
            for candidate in self._adjacent(point):
                if candidate not in reached:
                    reached.add(candidate)
                    frontier.append(candidate)
        return next(filter(self.is_legal, frontier), None) or self.random_point(rng) or next(self.points(rng), None)

    def points(self, rng):
        """Generate every legal point exactly once, in a scrambled order, without listing any parameter's values.

        Parameters are fixed one after the other and a constraint is checked as soon as it can be, so that a constraint that
        rules out all values of one parameter is not tried with every value of the next.
        """
        # A constraint is due at the last of the parameters it reads (at the first one if it reads none).
        due = [[] for _ in self.parameters]
        for constraint, names in self._checks:
            due[max((position for _, position in names), default=0)].append((constraint, names))
        orders = [_scrambled_order(parameter.size, rng) for parameter in self.parameters]

        def extend(prefix):
            depth = len(prefix)
            if depth == len(self.parameters):
                yield prefix
                return
            start, stride = orders[depth]
            parameter = self.parameters[depth]
            for i in range(parameter.size):
                point = (*prefix, parameter.unrank((start + i * stride) % parameter.size))
                if all(self._holds(constraint, names, point) for constraint, names in due[depth]):
                    yield from extend(point)

        return extend(())

    def _adjacent(self, point):
        """The points one edge away, the constraints not looked at."""
        for i, parameter in enumerate(self.parameters):
            for vertex in parameter.neighbours(point[i]):
                yield (*point[:i], vertex, *point[i + 1 :])

    def _holds(self, constraint, names, point):
        return constraint.holds({name: self.parameters[i].decode(point[i]) for name, i in names})


def _scrambled_order(size, rng):
    """A start and a stride that visit 0..size-1 once each."""
    start = int(rng.random() * size)
    stride = 1 + int(rng.random() * size)
    while gcd(stride, size) != 1:
        stride += 1
    return start, stride


def _read_factor(name, value):
    return Factor(name, *_pair(name, value, "factor", "[product, parts]"))


def _read_randint(name, value):
    lower, upper = _pair(name, value, "randint", "[lower, upper]")
    if not is_integer(lower) or not is_integer(upper) or not 0 < upper - lower <= MAX_RANDINT:
        raise ValueError(
            f"search space parameter '{name}': randint needs integers lower < upper at most {MAX_RANDINT} apart, got {value!r}"
        )
    return Discrete(name, list(range(lower, upper)))


def _pair(name, value, kind, meaning):
    if not isinstance(value, list) or len(value) != 2:
        raise ValueError(f"search space parameter '{name}': {kind} needs _value {meaning}, got {value!r}")
    return value


TYPES = {
    "factor": _read_factor,
    "permutation": Permutation,
    "discrete": Discrete,
    "choice": Choice,
    "randint": _read_randint,
}


def _read_parameter(name, spec):
    if not isinstance(name, str):
        raise ValueError(f"search space parameter {name!r}: a name must be text")
    if not isinstance(spec, dict) or "_type" not in spec or "_value" not in spec:
        raise ValueError(f"search space parameter '{name}': expected an object with _type and _value, got {spec!r}")
    read = TYPES.get(spec["_type"]) if isinstance(spec["_type"], str) else None
    if read is None:
        raise ValueError(f"search space parameter '{name}': unknown _type {spec['_type']!r}; allowed: {', '.join(TYPES)}")
    return read(name, spec["_value"])
