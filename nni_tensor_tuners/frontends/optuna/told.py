"""A search that is told what an Optuna study's trials have found."""

import math

from optuna.trial import TrialState

from ...search import create_search


class Told:
    """A search, and what it has been told of a study's trials.

    A gain is a trial's value, with its sign turned where values are minimised. As long as all gains are negative, as those of
    times are, fitness is the reciprocal of the value: positive, as searches that select in proportion to it need.

    Parameters
    ----------
    space
        A `Space`.
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
