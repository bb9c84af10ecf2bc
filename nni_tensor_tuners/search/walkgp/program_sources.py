"""What was measured of programs elsewhere, of any operators, shapes and devices: a trend of the scores of programs here."""

import numpy as np

from ..described import side_by_side
from .scores import performance_scores
from .trees import predicted, trained

# Models that differ in what they see of the trials; their mean counts.
MODELS = 5


class ProgramSources:
    """Boosted trees on features of programs, trained on all sources' trials, each source's scores standardised: the global model of
    AutoTVM's paper, section 4.

    Parameters
    ----------
    histories
        A list of (features, fitness) for each source; None where a trial failed, of which nothing is learned.

    Raises
    ------
    ValueError
        If no two trials of one succeeded, or if features are not all of one length.
    """

    def __init__(self, histories):
        succeeded = [[(row, fitness) for row, fitness in history if fitness is not None] for history in histories]
        telling = [each for each in succeeded if len(each) > 1]
        if not telling:
            raise ValueError("transfer: fewer than two trials succeeded there")
        try:
            features = np.array([row for each in telling for row, _ in each], dtype=np.float32)
        except (TypeError, ValueError):
            raise ValueError("transfer: expected features of programs, all of one length") from None
        scores = [performance_scores(np.array([fitness for _, fitness in each], dtype=float)) for each in telling]
        scores = np.concatenate(scores)
        self._models = side_by_side(lambda seed: trained(features, scores, seed), range(MODELS))

    def mean(self, features):
        """What is expected of the scores of programs with some features, (m, d): (m,)."""
        return predicted(self._models, np.asarray(features, dtype=np.float32)).mean(axis=0)
