"""The tuner settings of an experiment, read alike by the tuner that runs and by the check before it."""

from ...search import arguments_of, check_names, create_search
from ...space import SearchSpace
from ...study import Objective, records
from ...tasks import OPERATORS, from_dict
from ...tasks.device import KINDS, find_device, kind_of
from ...tasks.recorded import features_of

# The arguments that every search takes under NNI, in the order in which they are explained.
ARGUMENTS = {
    "optimize_mode": "maximize (TFLOPS), or minimize, for trials with --metric latency_ms",
    "seed": "integer; the same seed and the same results, in the same order, give the same proposals",
    "constraints": "expressions that every proposal satisfies: a list, or lists by device kind (cuda, cpu)",
    "target": "whose constraints count where they are given by kind: cuda, cpu or auto",
    "warm_start": "one or several earlier experiments (id, folder or records file): what they measured here is known",
    "task": "what is tuned, as plain data, where it is to be asked which configurations can be scheduled (programs, networks)",
    "transfer": "one or several such sources of other shapes or devices (WalkGP, AutoTVM, Bansor)",
}


def make_search(search, search_space, class_args, kind=None):
    """The search that an experiment's tuner settings describe.

    Parameters
    ----------
    search
        A search's name.
    search_space
        NNI search-space JSON.
    class_args
        The YAML's ``classArgs``: the search's own and ``ARGUMENTS``.
    kind
        The device kind whose constraints count, where they are given by kind; None finds the device.

    Raises
    ------
    ValueError
        In one line that names the bad field.
    """
    own = {name: value for name, value in class_args.items() if name == "seed" or name not in ARGUMENTS}
    check_names(f"{search} has no argument", own, [*arguments_of(search), *ARGUMENTS])
    objective_of(class_args)
    constraints = class_args.get("constraints") or []
    if isinstance(constraints, dict):
        check_names("constraints: there is no device kind", constraints, KINDS)
        constraints = constraints.get(kind or kind_of(class_args.get("target", "auto"))) or []
    if not isinstance(constraints, list):
        raise ValueError(f"constraints: expected a list, or lists by device kind ({', '.join(KINDS)}), got {constraints!r}")
    return create_search(search, SearchSpace.from_json(search_space, constraints), **own)


def task_of(class_args):
    """The task that ``task`` names, and the device that it is to run on; None and None where none is named.

    Raises
    ------
    ValueError
        If there is no such task, or no such device here.
    """
    if class_args.get("task") is None:
        return None, None
    if not isinstance(class_args["task"], dict):
        raise ValueError(f"task: expected an operator and its fields, got {class_args['task']!r}")
    return from_dict(class_args["task"]), find_device(class_args.get("target", "auto"))


def objective_of(class_args):
    """The `Objective` of an experiment. A network's trials report what that takes; its searches go by what the task takes."""
    operator = (class_args.get("task") or {}).get("operator") if isinstance(class_args.get("task"), dict) else None
    of = "latency_ms" if operator in OPERATORS and OPERATORS[operator].optimize_mode == "minimize" else "default"
    return Objective(class_args.get("optimize_mode", "maximize"), of)


def read_histories(sources, objective, features=None):
    """Records of earlier experiments as `Search.transfer` takes them, given its ``transfer_features``.

    Returns
    -------
    A list for each source, and each task and device in it, of (configuration, fitness), or of (features, fitness).

    Raises
    ------
    ValueError
        If no program of a source can be made.
    """
    histories = []
    for source in sources:
        path = records.locate(source)
        known_of = {} if features is None else {"known_of": lambda record: features_of(record, features)}
        found = [records.history(group, objective, **known_of) for group in records.by_task(records.read(path))]
        if features is not None and not any(found):
            raise ValueError(
                f"transfer: {path}: no record is of a program that can be made here, or has its {features} features"
            )
        histories += filter(None, found)
    return histories
