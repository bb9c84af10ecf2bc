"""A study: one search, and what is known of its trials."""

import json
import logging
import time
from typing import Any, NamedTuple

from ..search import Exhausted
from . import records

_log = logging.getLogger(__name__)


class Trial(NamedTuple):
    """A trial that is over.

    Attributes
    ----------
    id
        As its front end counts trials.
    config
        Its configuration.
    fitness
        Higher is better; None if it failed.
    value
        Whatever the measurement gave besides: a metric, a record.
    """

    id: Any
    config: dict
    fitness: float | None
    value: Any = None


class Study:
    """The ask-measure-tell loop: every front end drives its search through one of these, by `run` or by `ask` and `tell`.

    No configuration is proposed twice, whoever measured it; results count for the configuration that was handed out; a trial
    that was cut short by a stop is proposed again.

    Parameters
    ----------
    search
        A `Search`.
    journal
        A file that gets a line for everything asked and told, which `resume` reads; None for none.
    settle
        What is built where a configuration is asked for, a function (`Task.settler`); None if it always is that one. What it
        has none for is told the search as failed, without a trial; what is built as another one as that one.
    first
        Configurations that are measured before the search is asked.
    describe
        Kind of features -> the function that a search which asks for them is given (`Task.describer`); None if there is none.

    Attributes
    ----------
    pending
        Trial id -> configuration of the trials that are neither told nor lost.
    rerun
        Configurations that the front end measures again after `resume`, without asking.
    exhausted
        Whether the search has no configuration left.
    seconds, longest
        Spent inside the search: in all, and in its longest call.
    """

    def __init__(self, search, journal=None, settle=None, first=(), describe=None):
        self._describe, self._settle = describe, settle or (lambda config: config)
        self.search = self._seeing(search)
        self._first = list(first)
        self._built_as = {}  # configuration, as text -> those that are built as it
        self._handed = set()  # configurations, as text, that `settle` had trials measure
        self.pending = {}
        self.rerun = []
        self.exhausted = False
        self.seconds = self.longest = 0.0
        self._journal = journal
        self._configs = {}  # trial id -> configuration of every trial
        self._requeued = []  # configurations proposed before a stop that were never measured

    # The loop.

    def run(self, measure, trials, batch=1):
        """Ask, measure and tell until ``trials`` are over or no configuration is left.

        Parameters
        ----------
        measure
            Called with a configuration, returns its fitness (None if it failed) and anything else to hand on.
        trials
            How many.
        batch
            So many are asked for at a time; none of them is told before all are measured.

        Yields
        ------
        Trial
            As each is told.
        """
        done = 0
        while done < trials:
            ids = range(done, min(done + batch, trials))
            configs = self.ask(ids)
            if not configs:
                return
            measured = [measure(config) for config in configs]
            for trial, config, (fitness, value) in zip(ids, configs, measured):
                self.tell(trial, fitness, value)
                yield Trial(trial, config, fitness, value)
            done += len(configs)

    def ask(self, ids):
        """Configurations for the first of these trials; fewer than asked for, or none, once the search is exhausted.

        Raises
        ------
        ValueError
            If no configuration satisfies the constraints.
        """
        start = time.perf_counter()
        configs = self._propose(len(ids))
        seconds = self._spent(start) / max(len(configs), 1)
        for trial, config in zip(ids, configs):
            self.pending[trial] = self._configs[trial] = config
            self.note(event="ask", parameter_id=trial, parameters=config, seconds=round(seconds, 6))
        return configs

    def tell(self, trial, fitness, value=None, config=None):
        """Report a trial's fitness (None if it failed), in any order, also of one that was lost or told before.

        Parameters
        ----------
        trial
            Its id; None, or one that was never asked for, for a configuration from elsewhere.
        fitness
            Higher is better.
        value
            What was measured, for the journal.
        config
            The configuration of a trial that was never asked for.

        Returns
        -------
        The configuration it counts for; None if there is none.
        """
        config = self._configs.get(trial, config)
        self.pending.pop(trial, None)
        if not isinstance(config, dict):
            _log.warning("result of the unknown trial %s ignored: %r", trial, value)
            return None
        self.note(event="tell", parameter_id=trial, parameters=config, value=value, fitness=fitness)
        self._learn(config, fitness)
        return config

    def note(self, **event):
        """Write an event to the journal."""
        if self._journal is not None:
            records.append(self._journal, event)

    # What is known from before.

    def warm_start(self, history):
        """Tell the search what was measured earlier, (configuration, fitness) pairs; those of other spaces are left out."""
        for config, fitness in history:
            self._learn(config, fitness)

    def resume(self, history, running):
        """Take up where the journal ends: every result counts, what was asked and never measured is asked again.

        Parameters
        ----------
        history
            (configuration, fitness, trial id) of the records, of which some may never have been told.
        running
            Called, if need be, for the configurations that the front end measures again of itself.

        Returns
        -------
        bool
            Whether there was a journal.
        """
        journal = records.read(self._journal)
        asked = {_key(event["parameters"]): event["parameters"] for event in journal if event["event"] == "ask"}
        self._handed.update(asked)
        told = {}  # configuration -> whether it is known to succeed
        for event in journal:
            if event["event"] == "settle":
                self._note_settled(event["parameters"], event["built"])
            if event["event"] == "tell":
                name = _key(event["parameters"])
                told[name] = told.get(name) or event["fitness"] is not None
                self._learn(event["parameters"], event["fitness"])
        for config, fitness, trial in history:  # measured, but nobody was there to be told
            name = _key(config)
            if name not in told or (fitness is not None and not told[name]):
                told[name] = fitness is not None
                self.tell(trial, fitness, config=config)
        unfinished = {name: config for name, config in asked.items() if name not in told}
        again = {_key(config) for config in running()} if unfinished else set()
        for name, config in unfinished.items():
            self._exclude(config)
            (self.rerun if name in again else self._requeued).append(config)
        _log.info("resumed: %d results, %d configurations proposed anew", len(told), len(self._requeued))
        return bool(journal)

    def move_to(self, search):
        """Go on with another search, of another space say: it is told what this one knows, as far as that is in its space."""
        before, self.search, self.exhausted = self.search, self._seeing(search), False
        self.warm_start((before.space.config(point), fitness) for point, fitness in before.results.items())
        for config in self.pending.values():
            self._exclude(config)

    def _seeing(self, search):
        if search.features is not None and self._describe is not None:
            search.see(self._describe(search.features), self._settle)
        return search

    def _propose(self, n):
        configs = self._requeued[:n]
        del self._requeued[:n]
        while self._first and len(configs) < n:
            first = self._first.pop(0)
            # None where it was asked before a stop, or is known from elsewhere.
            config = self._settled(first) if self.search.space.contains(first) else None
            if config is not None:
                self._exclude(config)
                configs.append(config)
        while len(configs) < n and not self.exhausted:
            try:
                proposed = self.search.ask(n - len(configs))
                settled = [self._settled(config) for config in proposed]
                configs += [config for config in settled if config is not None]
                if None not in settled:
                    break  # if these are fewer than asked for, no more are left
            except Exhausted as reason:
                if not self.search.known:
                    raise ValueError("constraints: no configuration satisfies them") from None
                _log.info("%s", reason)
                self.exhausted = True
        return configs

    def _settled(self, config):
        """What to measure for a configuration that the search proposes; None where there is nothing to measure."""
        built = self._settle(config)
        if built != config:
            self.note(event="settle", parameters=config, built=built)
            self._note_settled(config, built)
        if built is None or self.search.space.point(built) in self.search.results or _key(built) in self._handed:
            return None
        self._handed.add(_key(built))
        return built

    def _note_settled(self, config, built):
        """Tell the search what a configuration counts for that is built as another one, now or when that is told."""
        if built is None:
            self._learn(config, None)
        elif (point := self.search.space.point(built)) in self.search.results:
            self._learn(config, self.search.results[point])
        else:
            self._exclude(built)
            self._built_as.setdefault(_key(built), []).append(config)

    def _learn(self, config, fitness):
        for same in self._built_as.pop(_key(config), ()) if self._built_as else ():
            self._learn(same, fitness)
        start = time.perf_counter()
        try:
            self.search.tell(config, fitness)
        except ValueError as error:  # from another space: a trial that a user added by hand, data imported
            _log.warning("result ignored: %s", error)
        self._spent(start)

    def _exclude(self, config):
        try:
            self.search.exclude(config)
        except ValueError as error:
            _log.warning("%s", error)

    def _spent(self, start):
        seconds = time.perf_counter() - start
        self.seconds += seconds
        self.longest = max(self.longest, seconds)
        return seconds


def _key(config):
    return json.dumps(config, sort_keys=True)
