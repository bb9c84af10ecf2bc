"""Search spaces: finite parameters, each with the graph of its values, their product, and constraints. Knows nothing else."""

from .choice import Choice
from .discrete import Discrete
from .factor import Factor
from .listed import ListedSpace, by_values
from .permutation import Permutation
from .search_space import SearchSpace

__all__ = ["Choice", "Discrete", "Factor", "ListedSpace", "Permutation", "SearchSpace", "by_values"]
