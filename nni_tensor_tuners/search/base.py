"""The contract every search keeps: ask for configurations, tell their fitness."""

import math
import random
from abc import ABC, abstractmethod

from .described import Described

# What a model can see of a configuration: its own numbers, or its program's features (`tasks.features.FEATURES`).
CONFIGURATION = "configuration"
SEEN = (CONFIGURATION, "loop", "relation", "store")
# What only a TreeGRU sees, loop by loop.
TREE = "tree"


class Exhausted(Exception):
    """Every configuration that satisfies the constraints has been asked or told."""


class Search(ABC):
    """A search over a `SearchSpace`, driven from outside by `ask` and `tell`.

    Parameters
    ----------
    space
        The `SearchSpace`.
    seed
        Seeds the search's own generator: the same seed and the same results, told in the same order, give the same proposals.

    Attributes
    ----------
    results
        point -> fitness of everything told; None where the trial failed.
    features
        Which features of programs it asks for (`tasks.features.FEATURES`); None for none.
    """

    features = None

    def __init__(self, space, seed=0):
        if isinstance(seed, bool) or not isinstance(seed, int):
            raise ValueError(f"seed must be an integer, got {seed!r}")
        self.space = space
        self.rng = random.Random(seed)
        self.results = {}
        self._seen = set()  # points asked or told: none of them is proposed again
        self._legal_is_rare = False
        self._systematic = None
        self._described = None

    def see(self, describe, settle=None):
        """Be given ``describe``: configuration -> features of its program, shape (n,); None where it cannot be built.

        Threads call it, several at a time. ``settle``: configuration -> the one that is built for it, whose program is the same;
        None where none is (`Task.settler`).
        """
        self._described = Described(self.space, describe, settle)

    def ask(self, n=1):
        """Propose up to ``n`` distinct configurations that were never asked nor told before.

        Fewer come back when fewer are left.

        Raises
        ------
        Exhausted
            When none is left.
        """
        configs = []
        while len(configs) < n:
            point = self._propose()
            if point is None:
                break
            self._seen.add(point)
            configs.append(self.space.config(point))
        if n > 0 and not configs:
            raise Exhausted(f"all {len(self._seen)} configurations have been proposed")
        return configs

    def tell(self, config, fitness):
        """Report the fitness of a configuration (higher is better), asked before or not, in any order.

        None, NaN or an infinity means that the trial failed. A fitness stands against a failure told later (a trial can report
        and then crash); of two fitnesses the later one counts.

        Raises
        ------
        ValueError
            If the configuration is not in the space.
        """
        point = self.space.point(config)
        if fitness is not None and not math.isfinite(fitness):
            fitness = None
        self._seen.add(point)
        if fitness is None and point in self.results:
            return
        self.results[point] = fitness
        if fitness is not None:
            self._learn(point, float(fitness))

    def exclude(self, config):
        """Never propose a configuration: somebody measures it already."""
        self._seen.add(self.space.point(config))

    def transfer(self, histories):
        """Learn from configurations measured elsewhere: another shape of the operator, another device.

        What is shared is the configurations' own numbers, so the parameters must be the same, and it helps as far as the same
        values are good there. Or, with `transfer_features`, what the programs are like, which means the same for every shape
        and operator (AutoTVM's paper, section 4).

        Parameters
        ----------
        histories
            A list of (configuration, fitness) pairs for each kernel and device; None where a trial failed. With
            `transfer_features` each configuration's features in its place, shape (n,).

        Raises
        ------
        ValueError
            If the search cannot, or if the configurations have other parameters.
        """
        raise ValueError(f"{type(self).__name__} takes no transfer; a warm start tells it what was measured in this very space")

    @property
    def transfer_features(self):
        """Features of programs (`tasks.features.FEATURES`) that it cannot do without and that `transfer` takes; None: neither."""
        return None

    def check_described(self):
        """Raise ValueError if it cannot do without features of programs, and has not been given `see` what makes them."""
        if self.transfer_features is not None and self._described is None:
            raise ValueError(f"features: {self.transfer_features} are of programs, and it is not known of which: give the task")

    @property
    def known(self):
        """How many configurations have been asked, told or excluded."""
        return len(self._seen)

    @property
    def worst(self):
        """What a failed trial counts as where a number is needed: the lowest fitness told, and not above 0."""
        return min(0.0, min((fitness for fitness in self.results.values() if fitness is not None), default=0.0))

    @abstractmethod
    def _propose(self):
        """A legal point that is not in ``self._seen``, or None when there is none."""

    def _learn(self, point, fitness):
        """Take note of a successful trial; failed ones are only kept from being proposed again."""

    def _pop_unseen(self, points):
        """Take points off a list until one has not been seen (told, excluded) meanwhile; None when there is none."""
        while points:
            if (point := points.pop(0)) not in self._seen:
                return point
        return None

    def _random_unseen(self):
        """A random legal point not seen yet, or None when there is none. Uniformly random unless legal points are too rare."""
        if self._systematic is None:
            for _ in range(100):
                point = self._random_point()
                if point is None:
                    return None
                if point not in self._seen:
                    return point
            # Unseen points have become too rare to draw: from here on they are listed, each once.
            self._systematic = self.space.points(self.rng)
        return next((point for point in self._systematic if point not in self._seen), None)

    def _random_point(self):
        point = None if self._legal_is_rare else self.space.random_point(self.rng)
        if point is None:  # the first one of a listing that starts anywhere
            self._legal_is_rare = True
            point = next(self.space.points(self.rng), None)
        return point


def nearest_here(space, config):
    """The point that stands for a configuration measured elsewhere; ValueError unless it has the parameters of this space."""
    if not isinstance(config, dict):
        raise ValueError(f"transfer: expected the parameters {', '.join(space.names)}, got {config!r}")
    try:
        return space.nearest_point(config)
    except ValueError as error:
        raise ValueError(f"transfer: {error}") from None


def check_integer(name, value, minimum=1):
    """Raise ValueError unless an argument is an integer of at least ``minimum``."""
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise ValueError(f"{name} must be an integer >= {minimum}, got {value!r}")


def check_number(name, value, minimum, maximum):
    """Raise ValueError unless an argument is a number from ``minimum`` to ``maximum``."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not minimum <= value <= maximum:
        raise ValueError(f"{name} must be a number from {minimum:g} to {maximum:g}, got {value!r}")


def check_choice(name, value, allowed):
    """Raise ValueError unless an argument is one of the ``allowed``."""
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {value!r}")
