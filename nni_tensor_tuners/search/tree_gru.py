"""The neural cost model of AutoTVM: a TreeGRU over a program's loops, each of which it knows by its context (figure 3d)."""

import numpy as np
import torch

# Section A.3: the dimension of a loop's embedding, and of the GRU's state.
EMBEDDING, HIDDEN = 128, 128
# m, the slots that loops are scattered into; the paper gives no number.
SLOTS = 4
# Of the training, which the paper does not describe: Adam's steps, its step size, and the programs of a step.
STEPS, RATE, PROGRAMS = 150, 2e-3, 64


class TreeGRU:
    """An ensemble of context-encoded TreeGRUs (sections 3.1 and 4), each on a bootstrap sample if there is more than one.

    As `CostModel`, but for what ``features`` are, those of "tree" (`tasks.features`), shape (n, loops, 1 + d): for each loop of a
    program the place of the loop around it, and its context.

    Parameters
    ----------
    objective
        "rank" (equation 2) or "regression", of section 3.2.
    members
        How many; their spread estimates the uncertainty.
    generator
        A `numpy.random.Generator`.
    """

    def __init__(self, objective, members, generator):
        self.objective, self.members, self.generator = objective, members, generator
        self._networks = []
        self._scale = None

    def fit(self, features, labels, groups=None, offset=None):
        """Train anew; as `CostModel.fit`."""
        n = len(labels)
        groups = np.zeros(n, dtype=int) if groups is None else np.asarray(groups)
        offset = torch.zeros(n) if offset is None else _tensor(offset)
        labels = _tensor(labels)
        contexts = _tensor(features)[..., 1:]
        contexts = contexts[contexts[..., 0] > 0]
        self._scale = contexts.mean(0), contexts.std(0, unbiased=False).clamp(min=1e-3)
        rows = self._scaled(features)
        self._networks = []
        for _ in range(self.members):
            kept = np.arange(n) if self.members == 1 else np.sort(self.generator.integers(0, n, n))
            self._networks.append(self._train(rows, labels, groups, offset, kept))

    def predict(self, features):
        """Scores, higher is better: mean and standard deviation over the ensemble, each of shape (n,)."""
        rows = self._scaled(features)
        with torch.no_grad(), _OneThread():
            scores = np.array([network(rows).numpy().astype(float) for network in self._networks])
        return scores.mean(axis=0), scores.std(axis=0)

    def _scaled(self, features):
        """Contexts with mean 0 and deviation 1; before them the parent, and whether there is a loop."""
        rows, (mean, deviation) = _tensor(features), self._scale
        there = (rows[..., 1:2] > 0).float()
        return torch.cat([rows[..., :1], there, there * (rows[..., 1:] - mean) / deviation], dim=-1)

    def _train(self, rows, labels, groups, offset, kept):
        with torch.random.fork_rng(devices=[]), _OneThread():
            torch.manual_seed(int(self.generator.integers(2**31)))
            network = Network(rows.shape[-1] - 2)
            optimiser = torch.optim.Adam(network.parameters(), RATE)
            for _ in range(STEPS):
                # Programs of one task, as those of several are not ranked against each other.
                own = kept[groups[kept] == groups[self.generator.choice(kept)]]
                batch = torch.as_tensor(self.generator.choice(own, min(PROGRAMS, len(own)), replace=False))
                optimiser.zero_grad()
                loss = self._loss(network(rows[batch]) + offset[batch], labels[batch])
                loss.backward()
                optimiser.step()
        return network

    def _loss(self, scores, labels):
        if self.objective == "regression":
            return ((scores - labels) ** 2).mean()
        signs = torch.sign(labels[:, None] - labels[None, :])
        pairs = torch.nn.functional.softplus(-signs * (scores[:, None] - scores[None, :]))
        return (pairs * signs.abs()).sum() / signs.abs().sum().clamp(min=1)


class Network(torch.nn.Module):
    """Programs -> scores.

    A loop's state is a GRU's, its input the loop's embedded context, the state before the sum of its children's. Each state h
    is scattered, out_i = softmax(W^T h)_i h, and summed over the loops; a linear layer makes a score of that.
    """

    def __init__(self, width, embedding=EMBEDDING, hidden=HIDDEN, slots=SLOTS):
        super().__init__()
        self.embed = torch.nn.Linear(width, embedding)
        self.cell = torch.nn.GRUCell(embedding, hidden)
        self.scatter = torch.nn.Linear(hidden, slots, bias=False)
        self.score = torch.nn.Linear(slots * hidden, 1)

    def forward(self, rows):
        """Scores of programs, shape (n,).

        Parameters
        ----------
        rows
            Of shape (n, loops, 2 + width), outer loops before those inside: the place of the loop around, from 1, 0 where there
            is none; 1 where there is a loop; its context.
        """
        n, hidden = len(rows), self.cell.hidden_size
        program, place = (rows[..., 1] > 0).nonzero(as_tuple=True)
        loops = len(program)
        numbers = torch.full(rows.shape[:2], loops)
        numbers[program, place] = torch.arange(loops)
        around = rows[program, place, 0].long()
        parent = torch.where(around > 0, numbers[program, (around - 1).clamp(min=0)], loops)
        depth = _depths(parent)
        inputs = self.embed(rows[program, place, 2:])
        inside = rows.new_zeros(loops + 1, hidden)  # the sums of the children's states; the last is of what has no parent
        states, of = [], []
        for level in range(int(depth.max()) if loops else -1, -1, -1):
            at = (depth == level).nonzero()[:, 0]
            state = self.cell(inputs[at], inside[at])
            inside = inside.index_add(0, parent[at], state)
            states.append(state)
            of.append(program[at])
        if not loops:
            return self.score(rows.new_zeros(n, self.score.in_features))[:, 0]
        states, of = torch.cat(states), torch.cat(of)
        scattered = torch.softmax(self.scatter(states), dim=1)[:, :, None] * states[:, None, :]
        summed = rows.new_zeros(n, *scattered.shape[1:]).index_add(0, of, scattered)
        return self.score(summed.flatten(1))[:, 0]


def _tensor(numbers):
    return torch.as_tensor(np.asarray(numbers), dtype=torch.float32)


def _depths(parent):
    """How many loops are around each; those around have lower numbers, and what has none the number of all."""
    depth = torch.zeros(len(parent) + 1, dtype=torch.long)
    depth[-1] = -1
    while not torch.equal(deeper := depth[parent] + 1, depth[:-1]):
        depth[:-1] = deeper
    return depth[:-1]


class _OneThread:
    """A context in which PyTorch uses one thread: more only wait for each other, and disturb what is timed."""

    def __enter__(self):
        self._before = torch.get_num_threads()
        torch.set_num_threads(1)

    def __exit__(self, *_):
        torch.set_num_threads(self._before)
