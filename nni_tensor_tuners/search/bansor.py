"""Bansor: a bandit that chooses the sketch of each round (Gao, Mo, Zowtuk, Sajed, Gong, Chen, Jui, Lu)."""

import math

from .base import check_choice, check_number, nearest_here
from .registry import SEARCHES
from .rounds import Rounds


class Bansor(Rounds):
    """Bansor, section III.A: a round of trials after the other, each inside one sketch, which a bandit chooses.

    Sketches are the branches of the space's nested choice, of the first one at its top that has several. Each has an ``inner``
    search of its own, over the configurations of that branch. A round goes to the sketch with the highest

        UCB(k_i) = r_i + C sqrt(2 ln N(T) / N(k_i)),    r_i = min_j X_j / X_i    (equations 3 and 4)

    X_i being the lowest latency measured in sketch i, so that r_i is its best fitness over the best of all; N(k_i) the rounds
    it has had, N(T) those of all. A space without such a choice is one sketch, and the inner search, seed and all.

    Where it departs from the paper:

    - Inside a sketch the paper has Ansor's evolution, and one cost model for all sketches. Here each sketch has a search of its
      own, any but this one, which knows nothing of the others.
    - Which task of a network is next (section III.B) is `TaskScheduler`'s to say.
    - A round begins as soon as the one before has been handed out, from the results there are by then, so that trials can run
      side by side.
    - What was told or excluded without having been asked, by a warm start say, counts as well: N(k_i) is the number of a
      sketch's known configurations over ``round_size``, rounded up.
    - Of what the paper leaves open: sketches that have had no round come first, as listed (UCB1); r_i is 0 where nothing has
      succeeded or no fitness is positive; of equals the first is taken; a sketch that is used up is not chosen any more.

    Parameters
    ----------
    inner
        Name of the search inside a sketch; Ansor's evolution in the paper.
    selection
        "ucb", or "random": sketches uniformly at random, which is Ansor's and the paper's baseline.
    exploration
        C; 0.3 in the paper, chosen from 0.1, 0.3, 0.5 and 1.
    round_size
        Trials in a round. The paper tries 16 and 64, of which 16 does better.
    inner_args
        The inner search's own arguments, by name; left out, none.

    Attributes
    ----------
    arms
        The inner searches, in the order of the branches.

    >>> from nni_tensor_tuners import SearchSpace, create_search
    >>> tile = {"_type": "factor", "_value": [1024, 4]}
    >>> branches = [{"_name": "tiled", "X": tile}, {"_name": "packed", "X": tile}]
    >>> space = SearchSpace.from_json({"loop": {"_type": "choice", "_value": branches}})
    >>> search = create_search("Bansor", space, inner="Random")
    >>> for _ in range(160):
    ...     for config in search.ask(1):
    ...         search.tell(config, fitness=1.0 if config["loop"]["_name"] == "packed" else 0.1)
    >>> [arm.known for arm in search.arms]
    [16, 144]
    """

    def __init__(self, space, seed=0, inner="WalkGP", selection="ucb", exploration=0.3, round_size=16, inner_args=None):
        super().__init__(space, seed, inner, inner_args, round_size, ("Bansor", "TaskScheduler"))
        check_choice("selection", selection, ("ucb", "random"))
        check_number("exploration", exploration, 0, 100)
        self.selection, self.exploration = selection, exploration

    def transfer(self, histories):
        """Hand each sketch's search what was measured of that branch; nothing, where no history has two successes of it.

        Features of programs belong to no branch: with `transfer_features` every search is handed all.

        Raises
        ------
        ValueError
            As the inner search does, and if no sketch is handed anything.
        """
        if len(self.arms) == 1 or not SEARCHES[self.inner].transfers:
            self.arms[0].transfer(histories)  # the search itself; or it says that it takes none
            return
        if self.transfer_features is not None:
            for arm in self.arms:
                arm.transfer(histories)
            return
        parts = [{arm: [] for arm in self.arms} for _ in histories]
        for part, history in zip(parts, histories):
            for config, fitness in history:
                part[self._arm_of(nearest_here(self.space, config))].append((config, fitness))
        handed = {arm: [part[arm] for part in parts if part[arm]] for arm in self.arms}
        telling = [arm for arm, own in handed.items() if any(sum(f is not None for _, f in each) > 1 for each in own)]
        if not telling:
            raise ValueError("transfer: fewer than two trials of any branch succeeded there")
        for arm in telling:
            arm.transfer(handed[arm])

    def _choose(self):
        """The sketch of the next round, one of those not used up."""
        if self.selection == "random":
            return self._open[int(self.rng.random() * len(self._open))]
        rounds = {arm: self._rounds(arm) for arm in self.arms}
        best = {arm: max((f for f in arm.results.values() if f is not None), default=0.0) for arm in self.arms}
        log_total, top = math.log(sum(rounds.values()) or 1), max(best.values())

        def ucb(arm):
            if not rounds[arm]:
                return math.inf
            reward = max(best[arm], 0.0) / top if top > 0 else 0.0  # Equation (4)
            return reward + self.exploration * math.sqrt(2 * log_total / rounds[arm])  # Equation (3)

        return max(self._open, key=ucb)
