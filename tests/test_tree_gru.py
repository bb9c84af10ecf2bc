"""AutoTVM's neural cost model, where PyTorch is installed."""

import numpy as np
import pytest

from nni_tensor_tuners import SearchSpace, create_search

torch = pytest.importorskip("torch")

from nni_tensor_tuners.search.tree_gru import Network, TreeGRU  # noqa: E402

LOOPS, WIDTH = 6, 3


def programs(n, seed=0):
    """Random trees of up to six loops, shape (n, loops, 1 + width): parents, from 1, and contexts."""
    rng = np.random.default_rng(seed)
    found = np.zeros((n, LOOPS, 1 + WIDTH), dtype=np.float32)
    for program in found:
        loops = rng.integers(1, LOOPS + 1)
        program[:loops, 0] = [rng.integers(0, place + 1) for place in range(loops)]
        program[:loops, 1:] = rng.uniform(1, 5, (loops, WIDTH))
    return found


def by_hand(network, program):
    """A program's score, written down as in figure 3d, loop by loop."""
    w = {name: value.detach().double().numpy() for name, value in network.state_dict().items()}
    sigmoid = lambda x: 1 / (1 + np.exp(-x))  # noqa: E731
    out = np.zeros((w["scatter.weight"].shape[0], w["cell.weight_hh"].shape[1]))

    def state(place):
        x = w["embed.weight"] @ program[place, 2:] + w["embed.bias"]
        inside = [state(child) for child in range(len(program)) if program[child, 1] and program[child, 0] == place + 1]
        h = sum(inside, np.zeros(out.shape[1]))
        of_x = np.split(w["cell.weight_ih"] @ x + w["cell.bias_ih"], 3)
        of_h = np.split(w["cell.weight_hh"] @ h + w["cell.bias_hh"], 3)
        reset, update = sigmoid(of_x[0] + of_h[0]), sigmoid(of_x[1] + of_h[1])
        h = (1 - update) * np.tanh(of_x[2] + reset * of_h[2]) + update * h
        slots = np.exp(w["scatter.weight"] @ h)
        out[...] += (slots / slots.sum())[:, None] * h
        return h

    for place in range(len(program)):
        if program[place, 1] and program[place, 0] == 0:
            state(place)
    return w["score.weight"][0] @ out.ravel() + w["score.bias"][0]


def with_presence(found):
    """As a `Network` takes them: after the parent whether there is a loop."""
    return np.concatenate([found[..., :1], found[..., 1:2] > 0, found[..., 1:]], axis=-1)


def test_scores_are_those_of_the_recursion_written_down():
    torch.manual_seed(0)
    network = Network(WIDTH, embedding=4, hidden=5, slots=3).double()
    rows = with_presence(programs(20)).astype(float)
    with torch.no_grad():
        found = network(torch.as_tensor(rows)).numpy()
    np.testing.assert_allclose(found, [by_hand(network, row) for row in rows], rtol=1e-9)


def test_gradients():
    torch.manual_seed(0)
    network = Network(WIDTH, embedding=3, hidden=3, slots=2).double()
    rows = torch.as_tensor(with_presence(programs(4)).astype(float))
    names = [name for name, _ in network.named_parameters()]

    def score(*values):
        return torch.func.functional_call(network, dict(zip(names, values)), (rows,))

    assert torch.autograd.gradcheck(score, tuple(value.detach().requires_grad_() for value in network.parameters()))


@pytest.mark.parametrize("objective", ["rank", "regression"])
def test_it_learns_what_innermost_loops_are_worth(objective):
    def worth(found):
        leaf = [[p[1] > 0 and place + 1 not in found[i, :, 0] for place, p in enumerate(found[i])] for i in range(len(found))]
        return (found[..., 1] * leaf).sum(axis=1) / 10

    seen, unseen = programs(300), programs(100, seed=1)
    scores = []
    for _ in range(2):
        model = TreeGRU(objective, 1, np.random.default_rng(0))
        model.fit(seen, worth(seen))
        scores.append(model.predict(unseen)[0])
    assert np.array_equal(*scores)
    assert np.corrcoef(scores[0], worth(unseen))[0, 1] > 0.9
    # With what another model says already there is nothing to add, but to what it has the wrong way round.
    model.fit(seen, worth(seen), offset=-9 * worth(seen))
    assert np.corrcoef(model.predict(unseen)[0], worth(unseen))[0, 1] > 0.9
    assert model.predict(unseen)[0].std() > 4 * scores[0].std() or objective == "rank"


def test_tasks_are_not_ranked_against_each_other():
    """In one the longer loop is worth more, in the other, all of whose scores are lower, too."""
    found = programs(200)
    worth = found[..., 1].sum(axis=1) / 30
    groups = np.arange(200) // 100
    model = TreeGRU("rank", 2, np.random.default_rng(0))
    model.fit(found, worth - groups * 10, groups)
    mean, deviation = model.predict(programs(100, seed=1))
    assert np.corrcoef(mean, programs(100, seed=1)[..., 1].sum(axis=1))[0, 1] > 0.9 and deviation.max() > 0


def test_a_search_by_it():
    space = SearchSpace.from_json({"x": {"_type": "factor", "_value": [2**9, 3]}})

    def describe(config):
        rows = np.zeros((3, 2), dtype=np.float32)
        rows[:, 0], rows[:, 1] = [0, 1, 2], 1 + np.log2(config["x"])
        return rows

    search = create_search("AutoTVM", space, seed=0, model="treegru", batch_size=8, epsilon=0)
    assert search.features == "tree"
    search.see(describe)
    planted = lambda config: 1 / (1 + abs(np.log2(config["x"][2]) - 4) + np.log2(config["x"][0]))  # noqa: E731
    for _ in range(3):
        for config in search.ask(8):
            search.tell(config, planted(config))
    assert max(search.results.values()) == 1
