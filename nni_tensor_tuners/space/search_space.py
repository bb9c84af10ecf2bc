"""The product of several parameters, with constraints, read from NNI search-space JSON."""

from collections import deque
from math import gcd, prod

from . import nested
from .choice import Choice
from .constraints import Constraint
from .discrete import Discrete
from .factor import Factor
from .parameter import is_integer
from .permutation import Permutation

# Rejection sampling gives up after this many draws in a row that break a constraint, and systematic search takes over.
MAX_REJECTIONS = 10_000
# And after this many with the same branches of nested choices, which may have no legal point, other ones are drawn.
DRAWS_OF_A_BRANCH = 100
# How many points around the untiled configuration are looked at for a legal one.
MAX_START_POINTS = 20_000
# randint lists its values; a range longer than this is a mistake, not a tuning parameter.
MAX_RANDINT = 1_000_000


class SearchSpace:
    """All configurations of a set of parameters that satisfy every constraint.

    A *configuration* is a dict name -> plain value, as NNI carries it; its *point* is the tuple of the parameters' vertices,
    hashable and cheap, which is what searches work on. The parameters of a nested choice's branches are parameters of the space
    (`nested.Conditional`), and None in the points of other branches, so that every configuration has one point.

    >>> space = SearchSpace.from_json({"X": {"_type": "factor", "_value": [8, 2]}}, constraints=["X[0] <= 4"])
    >>> space.size
    4
    >>> space.contains({"X": [8, 1]})
    False
    >>> branches = [{"_name": "naive"}, {"_name": "tiled", "X": {"_type": "factor", "_value": [8, 2]}}]
    >>> space = SearchSpace.from_json({"loop": {"_type": "choice", "_value": branches}}, constraints=["loop.X[0] <= 4"])
    >>> space.size
    5
    >>> space.neighbours({"loop": {"_name": "naive"}})
    []
    """

    def __init__(self, parameters, constraints=()):
        self.parameters = list(parameters)
        self.names = [parameter.name for parameter in self.parameters]
        if isinstance(constraints, str):
            raise ValueError(f"constraints: expected a list of expressions, got the string {constraints!r}")
        position = {id(parameter): i for i, parameter in enumerate(self.parameters)}
        # The position of the parameter that decides whether each one is active; None for those that always are.
        self._parents = [position[id(p.parent)] if isinstance(p, nested.Conditional) else None for p in self.parameters]
        self._choices = [i for i, parameter in enumerate(self.parameters) if nested.chooses(parameter)]
        self._is_nested = bool(self._choices)
        self._keys = [self._key(i) for i in range(len(self.parameters))]
        self.constraints = [
            each if isinstance(each, Constraint) else Constraint(each, self.names) for each in constraints or ()
        ]
        self._checks = [(c, [(name, i) for i, name in enumerate(self.names) if name in c.names]) for c in self.constraints]
        self._checks_of = [[check for check in self._checks if name in check[0].names] for name in self.names]
        self._constrained = sorted({each for _, names in self._checks for each in names})
        # With every parameter active once, an expression that does not fit them fails here, not in the middle of a search.
        for i in range(len(self.parameters)):
            self.is_legal(self._with_active(i))

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
        read = [p for name, spec in search_space.items() for p in nested.read(name, spec, _read_parameter)]
        return cls(read, constraints)

    def to_json(self):
        """The parameters as NNI search-space JSON (the constraints are not part of it)."""
        top = {}
        holders = {None: [[top]]}  # position of a nested choice -> for each branch, the objects that have its parameters
        for i, parameter in enumerate(self.parameters):
            parent = self._parents[i]
            numbers = [0] if parent is None else sorted(parameter.branches)
            into = [each for number in numbers for each in holders[parent][number]]
            specs = [parameter.to_json() for _ in into]
            for each, spec in zip(into, specs):
                each[self._keys[i]] = spec
            if nested.chooses(parameter):
                for spec in specs:
                    spec["_value"] = [{nested.NAME: name} for name in spec["_value"]]
                holders[i] = [[spec["_value"][number] for spec in specs] for number in range(parameter.size)]
        return top

    def restricted(self, i, branch):
        """The configurations that take a branch of the nested choice at position ``i``, one at the top, as their own space.

        They are configurations of this space, and legal as they are here; their points are others.
        """
        described = self.to_json()
        choice = described[self._keys[i]]
        choice["_value"] = [choice["_value"][branch]]
        # The constraints as read for this space: one that comes to a parameter of another branch says nothing here either.
        return SearchSpace.from_json(described, self.constraints)

    @property
    def size(self):
        """Exact number of configurations before constraints."""
        return self._count(None, 0)

    def sample(self, rng):
        """Draw a configuration uniformly from those that satisfy the constraints; of a nested choice the branch first.

        Branches that have legal configurations are drawn with equal probability, not in proportion to their sizes: these tell
        how finely loops can be cut, not what a branch is worth, and differ by orders of magnitude, so that small branches would
        never be seen.

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
        flat = nested.flatten(config) if isinstance(config, dict) else {}
        point = []
        for i, parameter in enumerate(self.parameters):
            present = self._is_active(i, point)
            if present and parameter.name not in flat:
                break
            point.append(parameter.encode(flat.pop(parameter.name)) if present else None)
        if flat or len(point) < len(self.parameters):
            given = ", ".join(map(str, nested.flatten(config))) if isinstance(config, dict) else repr(config)
            raise ValueError(f"configuration: expected {self._expected(point)}, got {given or 'none'}")
        return tuple(point)

    def config(self, point):
        """The configuration of a point."""
        if not self._is_nested:
            return {parameter.name: parameter.decode(vertex) for parameter, vertex in zip(self.parameters, point)}
        config = {}
        holders = {None: config}
        for i, (parameter, vertex) in enumerate(zip(self.parameters, point)):
            if vertex is not None:
                value = parameter.decode(vertex)
                if nested.chooses(parameter):
                    value = holders[i] = {nested.NAME: value}
                holders[self._parents[i]][self._keys[i]] = value
        return config

    def nearest_point(self, config):
        """The point that stands for a configuration of another space with the same parameters; ValueError if none does."""
        flat, point = nested.flatten(config), []
        foreign = self._is_nested is False and set(flat) != set(self.names)
        for i, parameter in enumerate(() if foreign else self.parameters):
            present = self._is_active(i, point)
            if present and parameter.name not in flat:
                break
            point.append(parameter.nearest(flat.pop(parameter.name)) if present else None)
        if flat or len(point) < len(self.parameters):
            raise ValueError(f"expected {self._expected(point)}, got {config!r}")
        return tuple(point)

    def is_legal(self, point, changed=None):
        """Whether a point satisfies every constraint.

        Parameters
        ----------
        changed
            The one position at which it differs from a legal point, where that is known: only constraints that read what is there
            can be broken.
        """
        if changed is not None and not nested.chooses(self.parameters[changed]):
            return all(self._holds(constraint, names, point) for constraint, names in self._checks_of[changed])
        values = self._values(self._constrained, point)
        return all(constraint.holds(values) for constraint, _ in self._checks)

    def values(self, point):
        """name -> value of every parameter that is active in a point."""
        return self._values([(name, i) for i, name in enumerate(self.names)], point)

    def features(self, point):
        """`Parameter.features` of all parameters, one after the other."""
        return [x for parameter, vertex in zip(self.parameters, point) for x in parameter.features(vertex)]

    def settled(self, point, fill):
        """A point with None for what its branches do not have, and ``fill(i)`` for what they have and it has not.

        Parameters
        ----------
        fill
            Function from a parameter's position to a vertex of it.
        """
        if not self._is_nested:
            return tuple(fill(i) if vertex is None else vertex for i, vertex in enumerate(point))
        settled = []
        for i, vertex in enumerate(point):
            active = self._is_active(i, settled)
            settled.append((fill(i) if vertex is None else vertex) if active else None)
        return tuple(settled)

    def replaced(self, point, i, vertex):
        """A point with another vertex at position ``i``; what a new branch has of its own is as in `Parameter.origin`."""
        changed = (*point[:i], vertex, *point[i + 1 :])
        return self.settled(changed, lambda i: self.parameters[i].origin()) if nested.chooses(self.parameters[i]) else changed

    def drawn(self, rng, point=None):
        """A random point, the constraints not looked at; or one with what its branches have and it has not drawn at random."""
        point = [None] * len(self.parameters) if point is None else point
        return self.settled(point, lambda i: self.parameters[i].sample(rng))

    def random_point(self, rng):
        """A random legal point, as `sample` draws it, or None if ``MAX_REJECTIONS`` draws in a row broke a constraint."""
        for draw in range(MAX_REJECTIONS):
            if draw % DRAWS_OF_A_BRANCH == 0:
                branches = None
            point = self.drawn(rng, branches)
            if self.is_legal(point):
                return point
            # The branches stay, or those with few legal points would hardly be seen.
            branches = [vertex if nested.chooses(parameter) else None for parameter, vertex in zip(self.parameters, point)]
        return None

    def walk_point(self, point, q, rng):
        """A q-random walk in every parameter, the constraints not looked at.

        Where it leads to another branch, what that branch shares has walked too, and what it has of its own is drawn at random.
        """
        walked = tuple(parameter.walk(vertex, q, rng) for parameter, vertex in zip(self.parameters, point))
        return self.drawn(rng, walked) if any(walked[i] != point[i] for i in self._choices) else walked

    def neighbouring_points(self, point):
        """The legal points one edge away."""
        legal = self.is_legal(point)
        return [near for near, i in self._adjacent(point) if self.is_legal(near, i if legal else None)]

    def starting_point(self, rng):
        """The configuration without multi-level tiling, as a point (OpEvo appendix B); the nearest legal one where a constraint
        forbids it.

        Nearest by edges, looked for among ``MAX_START_POINTS`` points; a random one if there is none; None if none is legal.
        """
        origin = self.settled([parameter.origin() for parameter in self.parameters], None)
        reached, frontier = {origin}, deque([origin])
        while frontier and len(reached) < MAX_START_POINTS:
            point = frontier.popleft()
            if self.is_legal(point):
                return point
            for candidate, _ in self._adjacent(point):
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
            active = self._is_active(depth, prefix)
            for i in range(parameter.size if active else 1):
                point = (*prefix, parameter.unrank((start + i * stride) % parameter.size) if active else None)
                if all(self._holds(constraint, names, point) for constraint, names in due[depth]):
                    yield from extend(point)

        return extend(())

    def _adjacent(self, point):
        """The points one edge away, the constraints not looked at, and where each differs."""
        for i, parameter in enumerate(self.parameters):
            for vertex in parameter.neighbours(point[i]):
                yield self.replaced(point, i, vertex), i

    def _holds(self, constraint, names, point):
        return constraint.holds(self._values(names, point))

    def _values(self, names, point):
        """name -> value of what is active, of (name, position) pairs."""
        return {name: self.parameters[i].decode(point[i]) for name, i in names if point[i] is not None}

    # Nested choices.

    def _is_active(self, i, point):
        """Whether the branches chosen in a point, of which those before ``i`` are known, have parameter ``i``."""
        parent = self._parents[i]
        return parent is None or point[parent] in self.parameters[i].branches

    def _with_active(self, i):
        """A point in which parameter ``i`` is active."""
        chosen = [None] * len(self.parameters)
        while (parent := self._parents[i]) is not None:
            chosen[parent], i = min(self.parameters[i].branches), parent
        return self.settled(chosen, lambda i: self.parameters[i].unrank(0))

    def _count(self, parent, branch):
        """How many combinations of values the parameters of a branch have; those at the top for None."""
        return prod(
            sum(self._count(i, number) for number in range(parameter.size)) if nested.chooses(parameter) else parameter.size
            for i, parameter in enumerate(self.parameters)
            if self._parents[i] == parent and (parent is None or branch in parameter.branches)
        )

    def _key(self, i):
        """Under which key the object around it has parameter ``i``."""
        name = self.names[i].removesuffix(f".{nested.NAME}") if nested.chooses(self.parameters[i]) else self.names[i]
        return name if self._parents[i] is None else name.rpartition(".")[2]

    def _expected(self, point):
        """The parameters that a configuration beginning like ``point`` has, in words."""
        filled = self.settled([*point, *[None] * (len(self.parameters) - len(point))], lambda i: self.parameters[i].unrank(0))
        return "the parameters " + ", ".join(name for name, vertex in zip(self.names, filled) if vertex is not None)


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
