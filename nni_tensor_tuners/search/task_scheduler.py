"""Which task of a network is tuned next: by what trials have saved so far, Bansor's bandit, Ansor's gradient, or each in turn."""

import math
import re

from ..space.nested import NAME
from .base import CONFIGURATION, check_choice, check_number
from .rounds import Rounds

GOLDEN = 1.618  # Ansor's: tasks are alike whose operations differ by less than this factor, or so
SELECTIONS = ("saving", "ucb", "gradient", "round-robin")
BLUR = 0.05  # The logarithms of latencies are known to this.
VARIES = 0.5  # The variance of what tasks save, over the square of the mean.
# Trials between two that a task is handed from others, and trials after which it hands on its own.
HANDED_EVERY = 4


class TaskScheduler(Rounds):
    """Bansor, section III.B: a round of trials after the other, each of one task of a network.

    Tasks are the branches of the space's nested choice. Fitness is the reciprocal of a task's latency (`Objective("minimize")`),
    so that latencies of different tasks can be added up: f = sum of w_i g_i (equation 1), w_i being how often the network runs
    task i, g_i its lowest latency. Each task has an ``inner`` search of its own. A round goes to the task that promises most,

        |df/dt_i| = w_i |alpha (g(t_i) - g(t_i - window)) / window + (1 - alpha) min(-g / t_i, beta C_i / max V_k - g)|   (2)

    t_i its rounds, C_i its operations, V_k the operations in a unit of time of tasks like it; and chosen is

    - ``ucb``: the highest |df/dt_i| / max_j |df/dt_j| + C sqrt(2 ln N(E) / N(T_i)) (equations 5 and 6), N counting rounds;
    - ``gradient``: the highest |df/dt_i|, and with probability ``epsilon`` any (Ansor's);
    - ``round-robin``: the one with the fewest rounds;
    - ``saving``, in no paper: the one whose next trial is expected to save most, w_i g_i c_i / (n_i + 1). Of n draws in random
      order the j-th is the best so far with probability 1 / j; so what trial j saves, s_ij as a share of g_i, is taken to be
      c_i / j in the mean. Of each c_i is believed what its trials show beyond chance (`_rates`): where tasks do not differ in
      that, this is the forward term of (2). Latencies are not known exactly: s_ij = E max(0, log(best before / latency) + 0.05 Z),
      Z a standard normal variable. A task that has only failed gets as many trials as the others in the mean.

    Tasks that have had no round come first, as listed. What was told from elsewhere counts as rounds, as in `Rounds`. Where a
    task like it has got further, a round begins with the best configuration of that one, as near as it can be had.

    Where it departs from the papers:

    - Theirs gives neither alpha, beta, the window nor epsilon; these are TVM's auto_scheduler's.
    - Its formula (2) prints 1 / (1 - alpha); this is Ansor's.
    - Handing configurations from task to task is not in them.

    Parameters
    ----------
    inner, inner_args
        The search inside a task, and its arguments by name; left out, WalkGP has ``initial: 1``, ``features: configuration``.
    selection
        "saving", "ucb", "gradient" or "round-robin".
    exploration
        C.
    round_size
        Trials in a round.
    counts
        Task -> how often the network runs it; 1 where nothing is said.
    flop
        Task -> floating-point operations of one run; left out, no task is like another in (2).
    defaults
        Task -> latency of a schedule that it has if no trial's is faster, and that no configuration stands for.
    alpha, beta, window, epsilon
        As above.
    """

    def __init__(
        self,
        space,
        seed=0,
        inner="WalkGP",
        selection="saving",
        exploration=0.3,
        round_size=1,
        counts=None,
        flop=None,
        defaults=None,
        alpha=0.2,
        beta=2.0,
        window=3,
        epsilon=0.05,
        inner_args=None,
    ):
        if inner_args is None and inner == "WalkGP":
            # A task has some ten trials, too few for trees, and begins with a default schedule.
            inner_args = {"initial": 1, "features": CONFIGURATION}
        super().__init__(space, seed, inner, inner_args, round_size, ("TaskScheduler",))
        check_choice("selection", selection, SELECTIONS)
        most = {"exploration": 100, "alpha": 1, "beta": 100, "epsilon": 1}
        for name, value in (("exploration", exploration), ("alpha", alpha), ("beta", beta), ("epsilon", epsilon)):
            check_number(name, value, 0, most[name])
        check_number("window", window, 1, 1000)
        self.selection, self.exploration, self.epsilon = selection, exploration, epsilon
        self.alpha, self.beta, self.window = alpha, beta, int(window)
        by_task = {"counts": counts, "flop": flop, "defaults": defaults}
        self.counts, self.flop, self.defaults = (_by_name(name, given, self.names) for name, given in by_task.items())
        self._counts = [self.counts.get(name, 1) for name in self.names]
        self._flop = [self.flop.get(name) for name in self.names]
        self._defaults = dict(zip(self.arms, (self.defaults.get(name, math.inf) for name in self.names)))
        kinds = [re.sub(r"\d+", "", str(name)) for name in self.names]
        sizes = [None if each is None else math.floor(math.log(each + 1, GOLDEN)) for each in self._flop]
        self._kinds = kinds
        self._alike = [
            [j for j in range(len(kinds)) if j != i and sizes[i] is not None and (kinds[j], sizes[j]) == (kinds[i], sizes[i])]
            for i in range(len(kinds))
        ]
        self._latencies = [[] for _ in self.names]  # of each task, after each of its rounds
        self._handed = set()  # (task, other task, point of the other): best ones that the task has been given
        self._handed_at = {}  # task -> how many of its configurations were known then

    def _choose(self):
        rounds = [self._rounds(arm) for arm in self.arms]
        for arm, latencies, had in zip(self.arms, self._latencies, rounds):
            latencies += [self._latency(arm)] * (had - len(latencies))
        place = {arm: i for i, arm in enumerate(self.arms)}
        candidates = [place[arm] for arm in self._open]
        if unknown := [i for i in candidates if not rounds[i]]:
            return self.arms[unknown[0]]
        if self.selection == "saving":
            failed = [i for i in candidates if not math.isfinite(self._latencies[i][-1])]
            if waiting := [i for i in failed if rounds[i] * len(rounds) < sum(rounds)]:
                return self.arms[waiting[0]]
            savings = self._savings()
            return self.arms[max(candidates, key=lambda i: savings[i])]
        if self.selection == "round-robin":
            return self.arms[min(candidates, key=lambda i: rounds[i])]
        slopes = [self._slope(i, rounds[i]) for i in range(len(rounds))]
        if self.selection == "gradient":
            if self.rng.random() < self.epsilon:
                return self.arms[candidates[int(self.rng.random() * len(candidates))]]
            return self.arms[max(candidates, key=lambda i: slopes[i])]
        steepest, log_total = max(slopes), math.log(sum(rounds))

        def ucb(i):  # Equations (5) and (6)
            reward = slopes[i] / steepest if steepest > 0 else 0.0
            return reward + self.exploration * math.sqrt(2 * log_total / rounds[i])

        return self.arms[max(candidates, key=ucb)]

    def _latency(self, arm):
        best = max((f for f in arm.results.values() if f is not None), default=0.0)
        return min(1 / best if best > 0 else math.inf, self._defaults[arm])

    def _savings(self):
        """What the next trial of each task is expected to save of the network's time; less than 0 of a task that has only failed."""
        saved = [_saved(arm, self._defaults[arm]) for arm in self.arms]
        savings = []
        for arm, count, rate, each in zip(self.arms, self._counts, _rates(saved), saved):
            trials = len(each) + len(arm._seen) - len(arm.results)  # those that are running included
            latency = self._latency(arm)
            savings.append(count * latency * rate / (trials + 1) if math.isfinite(latency) else -arm.known)
        return savings

    def _slope(self, i, rounds):
        """|df/dt_i| (equation 2); 0 of a task that has only failed."""
        latencies = self._latencies[i]
        now = latencies[-1]
        if not math.isfinite(now):
            return 0.0
        before = latencies[-1 - self.window] if len(latencies) > self.window else now
        backward = (now - before) / self.window if math.isfinite(before) else 0.0
        forward = -now / rounds
        speeds = [self._flop[k] / self._latencies[k][-1] for k in self._alike[i] if self._latencies[k]]
        if max(speeds, default=0.0) > 0:
            forward = min(forward, self.beta * self._flop[i] / max(speeds) - now)
        return self._counts[i] * abs(self.alpha * backward + (1 - self.alpha) * forward)

    def _begin(self, arm):
        """The best configuration of the task most like an arm's that it has not been given, where it fits."""
        i = self.arms.index(arm)
        if arm.known - self._handed_at.get(i, -HANDED_EVERY) < HANDED_EVERY:
            return None
        others = [j for j, kind in enumerate(self._kinds) if j != i and kind == self._kinds[i]]
        if self._flop[i] is not None:
            others.sort(key=lambda j: abs(math.log((self._flop[j] or 1) / self._flop[i])))
        for j in others:
            other = self.arms[j]
            point = max((p for p, f in other.results.items() if f is not None), key=other.results.get, default=None)
            if point is None or len(other.results) < HANDED_EVERY or (i, j, point) in self._handed:
                continue
            self._handed.add((i, j, point))
            config = other.space.config(point)
            choice = self.space.names[self._choice].removesuffix(f".{NAME}")
            try:
                near = arm.space.nearest_point({**config, choice: {**config[choice], NAME: self.names[i]}})
            except ValueError:  # it has other parameters
                continue
            if near not in arm._seen and arm.space.is_legal(near):
                self._handed_at[i] = arm.known
                return near
        return None


def _saved(arm, default):
    """What each of a task's kernels after its first, the default one if it has one, has saved: the logarithm of a factor, as the
    class says of s_ij."""
    best, saved = 1 / default if math.isfinite(default) else None, []
    kernels = dict.fromkeys(f for f in arm.results.values() if f is not None and f > 0)  # several configurations may be one
    for fitness in kernels:
        if best is not None:
            gain = math.log(fitness / best)
            density = math.exp(-((gain / BLUR) ** 2) / 2) / math.sqrt(2 * math.pi)
            saved.append(BLUR * density + gain * (1 + math.erf(gain / BLUR / math.sqrt(2))) / 2)
        best = max(fitness, best or 0.0)
    return saved


def _rates(saved):
    """c of each task, trial j of which saves c / j in the mean; ``saved`` has what the trials of each have saved.

    Each is drawn to that of all tasks (Bühlmann's credibility, 1967): they are taken to vary about it by `VARIES`, and, since
    savings are rare and of any size, the variance of a sum of them by chance to be the sum of their squares.
    """
    weights = [sum(1 / j for j in range(1, len(each) + 1)) for each in saved]
    total = sum(weights)
    usual = sum(map(sum, saved)) / (total or 1)
    if not usual:
        return [1.0] * len(saved)
    prior = sum((s / usual) ** 2 for each in saved for s in each) / total / VARIES
    return [(sum(each) + prior * usual) / (weight + prior) for each, weight in zip(saved, weights)]


def _by_name(argument, given, names):
    given = {} if given is None else given
    if not isinstance(given, dict):
        raise ValueError(f"{argument} must be positive numbers by task, got {given!r}")
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
            raise ValueError(f"{argument} must be positive numbers by task, got {value!r} for {name!r}")
        if name not in names and names != [None]:
            raise ValueError(f"{argument}: there is no task {name!r} in the space; there are {', '.join(names)}")
    return given
