"""Random search: the baseline."""

from .base import Search


class Random(Search):
    """Uniformly random configurations, without repetition.

    >>> from nni_tensor_tuners import SearchSpace, create_search
    >>> space = SearchSpace.from_json({"unroll": {"_type": "discrete", "_value": [0, 64]}})
    >>> sorted(c["unroll"] for c in create_search("Random", space).ask(5))
    [0, 64]
    """

    def _propose(self):
        return self._random_unseen()
