"""A small actor-critic network in NumPy: one hidden layer, a policy head and a value head, trained by Adam."""

import numpy as np


class ActorCritic:
    """Policy pi(a|s) and value V(s) that share one hidden layer of rectified units.

    Parameters
    ----------
    inputs, hidden, actions
        Sizes of the layers.
    lr
        Adam's step size.
    generator
        A `numpy.random.Generator`, for the initial weights.
    """

    # Weight of the value's error in the loss, and of the policy's entropy, which keeps it from settling too soon.
    VALUE_WEIGHT = 0.5
    ENTROPY_WEIGHT = 0.01

    def __init__(self, inputs, hidden, actions, lr, generator):
        # He initialisation below the rectifier; a nearly uniform policy and a value near zero to begin with.
        self.weights = {
            "hidden": generator.normal(0, np.sqrt(2 / max(inputs, 1)), (inputs, hidden)),
            "hidden_bias": np.zeros(hidden),
            "policy": generator.normal(0, 0.01, (hidden, actions)),
            "policy_bias": np.zeros(actions),
            "value": generator.normal(0, 0.01, hidden),
            "value_bias": np.zeros(1),
        }
        self.lr = lr
        self._moments = {name: (np.zeros_like(w), np.zeros_like(w)) for name, w in self.weights.items()}
        self._steps = 0

    def forward(self, states, allowed):
        """Policy of shape (n, actions), zero where an action is not allowed, and values of shape (n,).

        Parameters
        ----------
        states
            Of shape (n, inputs).
        allowed
            Booleans of shape (n, actions), at least one true in each row.
        """
        _, policy, value = self._forward(states, allowed)
        return policy, value

    def loss_and_gradients(self, states, allowed, actions, advantages, ratios, rewards):
        """The loss, a number, and its gradient for every weight.

        The loss is the mean over n transitions of ``- ratio * advantage * log pi(a|s) + VALUE_WEIGHT * (reward - V(s))^2 -
        ENTROPY_WEIGHT * H(pi(.|s))``, in which advantage and ratio are constants: nothing flows into the critic through the
        advantage.

        Parameters
        ----------
        states, allowed
            As for `forward`.
        actions
            Index of the action taken, of shape (n,).
        advantages, ratios, rewards
            Of shape (n,): reward - V(s); pi(a|s) over the probability with which the action was chosen; what it brought.
        """
        n = len(states)
        hidden, policy, value = self._forward(states, allowed)
        taken = policy[np.arange(n), actions]
        log_policy = np.log(np.where(policy > 0, policy, 1.0))
        entropy = -(policy * log_policy).sum(axis=1)
        error = rewards - value
        loss = np.mean(-ratios * advantages * np.log(taken) + self.VALUE_WEIGHT * error**2 - self.ENTROPY_WEIGHT * entropy)

        # d(-log pi_a)/d logits = pi - onehot(a);  d(-H)/d logits = pi * (log pi + H)
        chosen = np.zeros_like(policy)
        chosen[np.arange(n), actions] = 1.0
        d_logits = (ratios * advantages)[:, None] * (policy - chosen)
        d_logits += self.ENTROPY_WEIGHT * policy * (log_policy + entropy[:, None])
        d_logits /= n
        d_value = -2 * self.VALUE_WEIGHT * error / n
        d_hidden = d_logits @ self.weights["policy"].T + d_value[:, None] * self.weights["value"]
        d_hidden[hidden <= 0] = 0.0
        gradients = {
            "hidden": states.T @ d_hidden,
            "hidden_bias": d_hidden.sum(axis=0),
            "policy": hidden.T @ d_logits,
            "policy_bias": d_logits.sum(axis=0),
            "value": hidden.T @ d_value,
            "value_bias": d_value.sum(keepdims=True),
        }
        return loss, gradients

    def step(self, gradients):
        """One step of Adam (Kingma and Ba, algorithm 1) down the gradients."""
        self._steps += 1
        for name, gradient in gradients.items():
            mean, square = self._moments[name]
            mean += 0.1 * (gradient - mean)
            square += 0.001 * (gradient**2 - square)
            unbiased = mean / (1 - 0.9**self._steps)
            scale = np.sqrt(square / (1 - 0.999**self._steps)) + 1e-8
            self.weights[name] -= self.lr * unbiased / scale

    def _forward(self, states, allowed):
        w = self.weights
        hidden = np.maximum(states @ w["hidden"] + w["hidden_bias"], 0.0)
        logits = np.where(allowed, hidden @ w["policy"] + w["policy_bias"], -np.inf)
        unnormalised = np.exp(logits - logits.max(axis=1, keepdims=True))
        policy = unnormalised / unnormalised.sum(axis=1, keepdims=True)
        return hidden, policy, hidden @ w["value"] + w["value_bias"][0]
