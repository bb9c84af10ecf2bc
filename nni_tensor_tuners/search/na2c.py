"""N-A2C: neighbourhood actor advantage critic (Zhang, Cheng, Zang, Park: arXiv 1909.10616; patent US 11842178)."""

from dataclasses import dataclass

import numpy as np

from .actor_critic import ActorCritic
from .base import Search, check_integer, check_number

# Walks in a row without a new configuration, after which a neighbourhood counts as used up.
MAX_WALKS = 100
# After this many of them the moves are random: a policy that has settled walks the same way again and again.
POLICY_WALKS = 10
# Random points that say how large the network's inputs are.
SCALING_POINTS = 256
# Training after each round: minibatches, and transitions in each.
MINIBATCHES = 20
MINIBATCH_SIZE = 64
# An action that the policy has come to like far better than when it was chosen must not outweigh all others.
MAX_RATIO = 2.0


@dataclass(frozen=True)
class Transition:
    """One step of a walk: from ``state`` action ``action``, chosen with ``probability``, led to ``successor``."""

    state: tuple
    action: int
    probability: float
    successor: tuple


class NA2C(Search):
    """N-A2C: short walks around the best configuration, led by a policy that learns which moves pay.

    The search starts with the configuration without multi-level tiling (the nearest one that satisfies the constraints). Each
    round walks from the centre, the best configuration so far, again and again up to ``n_steps`` moves, until ``n_states``
    configurations not seen before have been reached; these are measured. A move is an edge of one parameter: the actions are
    all moves of all parameters, of which those that lead to a legal configuration can be taken. The reward of a move is the
    fitness it led to, as a fraction of the best one; 0 for a failed trial. The moves stay in a replay memory, from which
    actor and critic are trained after each round, by the policy gradient with advantage r - V(s) and by regression of V(s)
    on r.

    The paper's full text was not at hand: this follows its description in OpEvo's paper, the patent's claims and NNI's public
    example, whose settings are the defaults where the others give none. Texts differ in which branch epsilon names; here
    ``exploration`` is the probability of a random move. Left open by the papers: a round begins as soon as the one before has
    been handed out, and a result is credited to the moves that led to its configuration, whenever it comes. The memory's moves
    were chosen by earlier policies, so they are weighted by the ratio of probabilities, now over then, cut at 2. Where walks
    reach nothing new, a random configuration takes the round's place.

    Parameters
    ----------
    n_states
        Configurations measured per round; 6 in NNI's example.
    n_steps
        T, moves per walk; 3 in the experiments (OpEvo, appendix B).
    hidden_size
        Units in the hidden layer that actor and critic share; 128 in NNI's example.
    lr
        Adam's step size; 0 switches learning off. 0.001 in NNI's example.
    exploration
        Probability of a random move, 0.1 in NNI's example; the policy chooses otherwise. Walks that reach nothing new ten
        times in a row become random.

    >>> from nni_tensor_tuners import SearchSpace, create_search
    >>> space = SearchSpace.from_json({"X": {"_type": "factor", "_value": [1024, 4]}})
    >>> create_search("NA2C", space, seed=0).ask(1)
    [{'X': [1024, 1, 1, 1]}]
    """

    def __init__(self, space, seed=0, n_states=6, n_steps=3, hidden_size=128, lr=1e-3, exploration=0.1):
        super().__init__(space, seed)
        check_integer("n_states", n_states)
        check_integer("n_steps", n_steps)
        check_integer("hidden_size", hidden_size)
        check_number("lr", lr, 0, 1)
        check_number("exploration", exploration, 0, 1)
        self.n_states = n_states
        self.n_steps = n_steps
        self.exploration = exploration
        self.memory = []  # every `Transition` of the walks that reached something new
        self._moves = [(i, move) for i, parameter in enumerate(space.parameters) for move in range(parameter.moves)]
        self._center = None
        self._reached = []  # configurations of this round, not handed out yet
        self._used_up = None  # a center from which walks reach nothing new
        self._successors = {}  # point -> {action: point}
        self._inputs = {}  # point -> the network's input
        self._trained_on = 0
        generator = np.random.default_rng(self.rng.getrandbits(64))
        # Constraints do not matter to a scale, and legal points may be hard to find.
        samples = [space.drawn(self.rng) for _ in range(SCALING_POINTS)]
        raw = np.array([self._raw_input(point) for point in samples])
        self._mean, self._scale = raw.mean(axis=0), np.maximum(raw.std(axis=0), 1e-6)
        self.network = ActorCritic(raw.shape[1], hidden_size, len(self._moves), lr, generator)

    def _propose(self):
        if not self._seen:
            self._center = self.space.starting_point(self.rng)
            return self._center
        if (point := self._pop_unseen(self._reached)) is not None:
            return point
        if self._center is not None and self._center != self._used_up:
            self._train()
            self._walk()
        return self._reached.pop(0) if self._reached else self._random_unseen()

    def _learn(self, point, fitness):
        if self._center is None or self._center not in self.results or self.results[self._center] is None:
            self._center = point
        elif point == self._center:  # told again, perhaps worse
            successes = {p: f for p, f in self.results.items() if f is not None}
            self._center = max(successes, key=successes.get)
        elif fitness > self.results[self._center]:
            self._center = point

    # Walking.

    def _walk(self):
        """Collect up to ``n_states`` unseen configurations, and every move on the way to them."""
        fruitless = 0
        while fruitless < MAX_WALKS and len(self._reached) < self.n_states:
            walk, before = [], len(self._reached)
            state = self._center
            while len(walk) < self.n_steps and len(self._reached) < self.n_states:
                successors = self._legal_successors(state)
                if not successors:
                    break
                exploration = self.exploration if fruitless < POLICY_WALKS else 1.0
                action, probability = self._choose(state, successors, exploration)
                walk.append(Transition(state, action, probability, successors[action]))
                state = successors[action]
                if state not in self._seen and state not in self._reached:
                    self._reached.append(state)
            if len(self._reached) > before:
                self.memory += walk
                fruitless = 0
            else:  # nothing to remember: all of it has been learned from before
                fruitless += 1
        if not self._reached:
            self._used_up = self._center

    def _choose(self, state, successors, exploration):
        """An action, and the probability with which it was chosen; random with probability ``exploration``."""
        actions = list(successors)
        policy = self.network.forward(*self._inputs_of([state]))[0][0, actions]
        mixed = exploration / len(actions) + (1 - exploration) * policy
        chosen = self.rng.choices(range(len(actions)), mixed.tolist())[0]
        return actions[chosen], float(mixed[chosen])

    def _legal_successors(self, state):
        """Action -> the legal point it leads to from ``state``."""
        if state not in self._successors:
            moved = {}
            for action, (i, move) in enumerate(self._moves):
                vertex = self.space.parameters[i].move(state[i], move)
                if vertex is not None and self.space.is_legal(point := self.space.replaced(state, i, vertex)):
                    moved[action] = point
            self._successors[state] = moved
        return self._successors[state]

    # Learning.

    def _train(self):
        """Some minibatches from the moves whose rewards are known."""
        known = [transition for transition in self.memory if transition.successor in self.results]
        worst, best = self.worst, max((fitness for fitness in self.results.values() if fitness is not None), default=0.0)
        if not known or self.network.lr == 0 or len(self.results) == self._trained_on:
            return
        self._trained_on = len(self.results)
        for _ in range(MINIBATCHES):
            batch = self.rng.sample(known, min(MINIBATCH_SIZE, len(known)))
            states, allowed = self._inputs_of([transition.state for transition in batch])
            actions = np.array([transition.action for transition in batch])
            rewards = np.array([self._reward(transition.successor, worst, best) for transition in batch])
            policy, value = self.network.forward(states, allowed)
            now = policy[np.arange(len(batch)), actions]
            ratios = np.minimum(now / [transition.probability for transition in batch], MAX_RATIO)
            _, gradients = self.network.loss_and_gradients(states, allowed, actions, rewards - value, ratios, rewards)
            self.network.step(gradients)

    def _reward(self, point, worst, best):
        """Fitness as a fraction of the best; from the worst one up, where fitness can be negative."""
        fitness = self.results[point]
        return 0.0 if fitness is None or best == worst else (fitness - worst) / (best - worst)

    def _inputs_of(self, states):
        """The network's inputs and the allowed actions of some states."""
        allowed = np.zeros((len(states), len(self._moves)), dtype=bool)
        for row, state in enumerate(states):
            allowed[row, list(self._legal_successors(state))] = True
        return np.array([self._input(state) for state in states]), allowed

    def _input(self, point):
        if point not in self._inputs:
            self._inputs[point] = (np.array(self._raw_input(point)) - self._mean) / self._scale
        return self._inputs[point]

    def _raw_input(self, point):
        # Logarithms: tiles and unroll depths grow by factors.
        return [np.copysign(np.log2(1 + abs(x)), x) for x in self.space.features(point)]
