"""The one table of searches, which NNI's registration, the experiments' YAML, ``--help`` and the README's table are made from.

Nothing here loads NumPy, SciPy or XGBoost: a search's module is imported when the first search of its kind is created.
"""

import json
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module


@dataclass(frozen=True)
class Argument:
    """An argument that a search has of its own.

    Attributes
    ----------
    name, default
        As in the signature of the search's class.
    help
        One line.
    paper
        What the paper has, in words, where that is not the default; "" where it is, or where there is no paper.
    shown
        Whether an experiment's YAML shows it.
    stands_for
        Where the default is None: the value it stands for beside the other defaults.
    """

    name: str
    default: object
    help: str
    paper: str = ""
    shown: bool = False
    stands_for: object = None

    @property
    def value(self):
        """The default as a user would write it."""
        return self.stands_for if self.default is None else self.default

    def as_yaml(self):
        """Name and default, as an experiment's YAML has it."""
        return f"{self.name}: {json.dumps(self.value).strip(chr(34))}"


@dataclass(frozen=True)
class Entry:
    """A search.

    Attributes
    ----------
    name
        As `create_search` takes it; also the name of its class.
    module
        Where the class is, relative to this package.
    summary
        One line.
    arguments
        A tuple of `Argument`.
    registered
        The name NNI knows it by, where it is not ``name``.
    transfers
        Whether it learns from what was measured of another shape or on another device (`Search.transfer`).
    nested
        Whether it is of use only where the space has a nested choice.
    networks
        Whether it is for networks, and only for them.
    """

    name: str
    module: str
    summary: str
    arguments: tuple = ()
    registered: str = ""
    transfers: bool = False
    nested: bool = False
    networks: bool = False

    @property
    def nni_name(self):
        """The name NNI knows it by."""
        return self.registered or self.name

    @property
    def shown(self):
        """The arguments that an experiment's YAML shows, as {name: value}."""
        return {argument.name: argument.value for argument in self.arguments if argument.shown}

    def load(self):
        """The class."""
        return getattr(import_module(self.module, __package__), self.name)


_ENTRIES = (
    Entry(
        "WalkGP",
        ".walkgp",
        "Gaussian process over the space's own graphs",
        (
            Argument(
                "initial",
                4,
                "configurations before the model proposes; of a nested choice for each branch, up to 16; with transfer "
                "of programs twice as many in all",
                shown=True,
            ),
            Argument("offspring", 300, "children of the best ones among the candidates; 0 for none", shown=True),
            Argument("failure_weight", 2, "what is learned about failures counts this much; 0 ignores it", shown=True),
            Argument("kernel", "mixed", "mixed; walk, rbf and hamming are there to compare with"),
            Argument("divisibility", True, "whether integers are also seen by the powers of two that divide them"),
            Argument(
                "features",
                None,
                "of programs, what a trend is learned from: relation (left out, with a nested choice), loop, store; configuration: no",
                stands_for="relation",
            ),
        ),
        transfers=True,
    ),
    Entry(
        "OpEvo",
        ".opevo",
        "evolution with a topology-aware mutation",
        (
            Argument("parents_size", 8, "lambda, how many of the best are parents", shown=True),
            Argument("offspring_size", 8, "rho, children in a generation", shown=True),
            Argument("mutate_rate", 0.5, "q, probability of each further step of a parameter's walk", shown=True),
        ),
    ),
    Entry(
        "GBFS",
        ".gbfs",
        "greedy best-first search",
        (Argument("num_samples", 5, "rho, neighbours drawn of each configuration that is expanded", shown=True),),
    ),
    Entry(
        "NA2C",
        ".na2c",
        "neighbourhood actor advantage critic, in NumPy",
        (
            Argument("n_states", 6, "configurations measured per round", paper="not known; 6 in NNI's example", shown=True),
            Argument("n_steps", 3, "T, moves per walk", shown=True),
            Argument("hidden_size", 128, "units in the hidden layer", paper="not known; 128 in NNI's example", shown=True),
            Argument("lr", 1e-3, "Adam's step size", paper="not known; 0.001 in NNI's example", shown=True),
            Argument("exploration", 0.1, "probability of a random move", paper="not known; 0.1 in NNI's example", shown=True),
        ),
    ),
    Entry(
        "AutoTVM",
        ".autotvm",
        "boosted trees and simulated annealing",
        (
            Argument("batch_size", 64, "b, configurations chosen at a time", shown=True),
            Argument(
                "objective",
                None,
                "of the cost model, rank or regression; left out, it is rank, and regression with ei or ucb",
                stands_for="rank",
            ),
            Argument("acquisition", "mean", "what candidates are chosen by: mean, ei or ucb", shown=True),
            Argument("model", "xgboost", "of costs: xgboost, or treegru, over the loops of programs (takes PyTorch)"),
            Argument(
                "features",
                "configuration",
                "what boosted trees see: configuration; loop or relation, the paper's; store, MetaSchedule's (these of programs)",
                paper="relation",
            ),
            Argument(
                "chains",
                None,
                "Markov chains that anneal side by side; left out, 128, with features of programs the batch_size",
                stands_for=128,
            ),
            Argument("steps", None, "of each, at most; left out, 500, with features of programs 8", stands_for=500),
            Argument("epsilon", 0.05, "fraction of random configurations in a batch", shown=True),
            Argument(
                "candidates", 2, "lambda, a batch is chosen from so many times its size", paper="tries 1, 2 and 4, chooses none"
            ),
            Argument(
                "diversity", 0.5, "alpha, worth of a value new to the batch, in deviations of the scores", paper="gives none"
            ),
        ),
        transfers=True,
    ),
    Entry(
        "NoSE",
        ".nose",
        "evolution with a k-nearest-neighbour surrogate",
        (
            Argument("population_size", 16, "N", paper="100", shown=True),
            Argument("offspring_ratio", 1.5, "M / N, children bred for each member of the population"),
            Argument("elite_ratio", 0.3, "E / N, how many of them are measured"),
            Argument("neighbours", 9, "k, measured configurations that an estimate is made of", shown=True),
            Argument("mutation_rate", 0.3, "p, of every parameter", shown=True),
        ),
    ),
    Entry(
        "Bansor",
        ".bansor",
        "bandit over the branches of a nested choice, a search inside each",
        (
            Argument("inner", "WalkGP", "the search inside a branch", paper="Ansor's evolution", shown=True),
            Argument("selection", "ucb", "of the branch: ucb, or random, which is Ansor's", shown=True),
            Argument("exploration", 0.3, "C, what rarely chosen branches gain with ucb", shown=True),
            Argument("round_size", 16, "trials in a branch before one is chosen again", paper="tries 16 and 64", shown=True),
            Argument("inner_args", None, "arguments of the inner search, by name", stands_for={}),
        ),
        transfers=True,
        nested=True,
    ),
    Entry(
        "TaskScheduler",
        ".task_scheduler",
        "chooses among the tasks of a network, a search inside each",
        (
            Argument("inner", "WalkGP", "the search inside a task", paper="Bansor's bandit over sketches", shown=True),
            Argument("selection", "saving", "of the task: saving, ucb (Bansor), gradient (Ansor) or round-robin", shown=True),
            Argument("exploration", 0.3, "C, what rarely chosen tasks gain with ucb"),
            Argument("round_size", 1, "trials of a task before one is chosen again", paper="tries 16 and 64", shown=True),
            Argument("counts", None, "how often the network runs each task, by name", stands_for={}),
            Argument("flop", None, "operations of each task, by name", stands_for={}),
            Argument("defaults", None, "latency of each task by a default schedule that no trial has, by name", stands_for={}),
            Argument("alpha", 0.2, "weight of what a task has gained against what it may gain"),
            Argument("beta", 2.0, "how much faster than a task like it a task may become"),
            Argument("window", 3, "rounds over which a gain is taken"),
            Argument("epsilon", 0.05, "probability of any task, with gradient"),
            Argument(
                "inner_args",
                None,
                "arguments of the inner search, by name",
                stands_for={"initial": 1, "features": "configuration"},
            ),
        ),
        nested=True,
        networks=True,
    ),
    Entry(
        "Genetic",
        ".genetic",
        "AutoTVM's genetic algorithm",
        (
            Argument("population_size", 16, "configurations in a generation", paper="100", shown=True),
            Argument("elite_size", 3, "how many of the best of all are parents of every generation", shown=True),
            Argument("mutation_rate", 0.1, "of every parameter", shown=True),
        ),
    ),
    Entry(
        "Random",
        ".random",
        "random, never twice the same",
        registered="RandomSearch",  # NNI keeps the name Random for a tuner of its own, which knows no factor parameters
    ),
)
SEARCHES = {entry.name: entry for entry in _ENTRIES}


def create_search(name, space, seed=0, **class_args):
    """Create a search.

    Parameters
    ----------
    name
        One of ``SEARCHES``.
    space
        A `SearchSpace`.
    seed
        Integer; the same seed gives the same search.
    class_args
        The search's own arguments; see its class.

    Raises
    ------
    ValueError
        In one line, for an unknown name, an unknown argument or a value out of range.
    """
    check_names(f"{name} has no argument", class_args, arguments_of(name))
    return SEARCHES[name].load()(space, seed=seed, **class_args)


def check_class_args(name, seed=0, **class_args):
    """Raise the ValueError that `create_search` raises, where there is no space yet."""
    from ..space import SearchSpace  # loads NumPy

    create_search(name, SearchSpace.from_json({"any": {"_type": "choice", "_value": [0]}}), seed, **class_args)


def arguments_of(name):
    """The names of the arguments a search has of its own; ValueError for an unknown search."""
    if name not in SEARCHES:
        raise ValueError(f"unknown search {name!r}; allowed: {', '.join(SEARCHES)}")
    return [argument.name for argument in SEARCHES[name].arguments]


def search_named_by_nni(nni_name):
    """Our name of the search that NNI knows by this one; ValueError, which says what NNI knows, where there is none."""
    for entry in SEARCHES.values():
        if entry.nni_name == nni_name:
            return entry.name
    allowed = ", ".join(entry.nni_name for entry in SEARCHES.values())
    ours = SEARCHES.get(nni_name) if isinstance(nni_name, str) else None
    hint = f" (NNI keeps the name {ours.name} for its own; ours is {ours.nni_name})" if ours else ""
    raise ValueError(f"expected one of {allowed}, got {nni_name!r}{hint}")


def as_markdown():
    """The table as Markdown: NNI's name, the search, its arguments and defaults."""
    lines = ["| `name` in the YAML | search | arguments (`classArgs`) and their defaults |", "|---|---|---|"]
    for entry in SEARCHES.values():
        arguments = []
        for argument in entry.arguments:
            paper = f" (the paper: {argument.paper})" if argument.paper[:1].isdigit() else ""
            arguments.append(f"`{argument.as_yaml()}`{paper}")
        lines.append(f"| `{entry.nni_name}` | {entry.summary} | {', '.join(arguments) or 'none'} |")
    return "\n".join(lines)


def check_names(complaint, given, allowed):
    """Raise ValueError for the first name of ``given`` that is not ``allowed``, with the nearest one that is."""
    for name in given:
        if name not in allowed:
            near = get_close_matches(str(name), allowed, 1)
            hint = f"did you mean '{near[0]}'? " if near else ""
            raise ValueError(f"{complaint} '{name}'; {hint}allowed: {', '.join(allowed) or 'none'}")
