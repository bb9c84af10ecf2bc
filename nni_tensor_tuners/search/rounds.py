"""Searches that give their trials in rounds to other searches, one for each branch of a nested choice."""

import math
from abc import abstractmethod

from ..space.nested import Branches
from .base import Exhausted, Search, check_choice, check_integer
from .registry import SEARCHES, arguments_of, check_names, create_search


class Rounds(Search):
    """A round of trials after the other, each inside one branch, which `_choose` names.

    Branches are those of the space's nested choice, of the first one at its top that has several. Each has an ``inner`` search
    of its own, over the configurations of that branch. A space without such a choice is one branch, and the inner search, seed
    and all. A round begins as soon as the one before has been handed out, from the results there are by then, so that trials
    can run side by side. A branch that is used up is not chosen any more.

    Parameters
    ----------
    inner, inner_args
        Name of the search inside a branch, and its arguments.
    outer
        Names of searches that cannot be inside.
    round_size
        Trials in a round.

    Attributes
    ----------
    arms
        The inner searches, in the order of the branches.
    names
        Of the branches, in the same order; [None] of a space that is one.
    """

    def __init__(self, space, seed, inner, inner_args, round_size, outer):
        super().__init__(space, seed)
        inner_args = {} if inner_args is None else inner_args
        check_choice("inner", inner, [name for name in SEARCHES if name not in outer])
        check_integer("round_size", round_size)
        if not isinstance(inner_args, dict):
            raise ValueError(f"inner_args must be {inner}'s arguments by name, got {inner_args!r}")
        check_names(f"inner_args: {inner} has no argument", inner_args, arguments_of(inner))
        self.inner, self.inner_args, self.round_size = inner, inner_args, round_size
        several = (i for i, each in enumerate(space.parameters) if isinstance(each, Branches) and each.size > 1)
        self._choice = next(several, None)  # its position
        spaces, self.names = [space], [None]
        if self._choice is not None:
            branches = space.parameters[self._choice]
            spaces = [space.restricted(self._choice, branch) for branch in range(branches.size)]
            self.names = [branches.decode(branch) for branch in range(branches.size)]
        self.arms = [create_search(inner, each, seed=seed, **inner_args) for each in spaces]
        self._open = list(self.arms)  # those not used up
        self._arm, self._left = None, 0  # of the current round, and how many trials it still has
        self.features = self.arms[0].features

    def see(self, describe, settle=None):
        super().see(describe, settle)
        for arm in self.arms:
            arm.see(describe, settle)

    @property
    def transfer_features(self):
        return self.arms[0].transfer_features

    @abstractmethod
    def _choose(self):
        """The arm of the next round, one of ``_open``."""

    def _begin(self, arm):
        """A point of an arm's space that its round begins with; None to ask the arm for one."""

    def _rounds(self, arm):
        """How many rounds an arm has had: its known configurations over ``round_size``, rounded up, whoever measured them."""
        return math.ceil(arm.known / self.round_size)

    def tell(self, config, fitness):
        super().tell(config, fitness)
        self._arm_of(self.space.point(config)).tell(config, fitness)

    def exclude(self, config):
        super().exclude(config)
        self._arm_of(self.space.point(config)).exclude(config)

    def _propose(self):
        while self._open:
            first = None
            if not self._left:
                self._arm, self._left = self._choose(), self.round_size
                first = self._begin(self._arm)
            try:
                if first is not None:
                    config = self._arm.space.config(first)
                    self._arm.exclude(config)
                else:
                    (config,) = self._arm.ask(1)
            except Exhausted:
                self._open.remove(self._arm)
                self._left = 0
            else:
                self._left -= 1
                return self.space.point(config)
        return None

    def _arm_of(self, point):
        return self.arms[0 if self._choice is None else point[self._choice]]
