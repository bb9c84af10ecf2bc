"""A network as something to tune: a nested choice of its tasks."""

import functools
import json
import re
from dataclasses import dataclass
from pathlib import Path

from ..program import DLIGHT, Program
from ..program.sketches import SKETCH
from ..shared import known_file
from ..task import Tunable, shape_field

# What the nested choice of tasks is called in a search space.
TASK = "task"
# Records beside the file that describes the network: of the default schedules, and of other experiments.
DEFAULTS, EARLIER = "defaults.jsonl", "earlier.jsonl"


@dataclass(frozen=True)
class Network(Tunable):
    """The tasks of a model, in a file that `prepare.prepare` wrote, each a program with the number of times that it is run.

    A configuration is a task's name and a configuration of its program:
    {"task": {"_name": "fused_conv2d_add_relu", "sketch": {...}}}.

    Attributes
    ----------
    path
        The file, ``network.json``; the programs lie beside it.
    sha256
        Of the file; left out, whatever it is.
    """

    path: str = shape_field("network: the network.json of a model")
    sha256: str = shape_field("network: of the file (default: whatever it is)", "")

    operator = "network"
    cold = True
    optimize_mode = "minimize"  # latencies of different tasks can be weighed against each other, TFLOPS cannot

    def __post_init__(self):
        path, sha256 = known_file(self.operator, self.path, self.sha256)
        object.__setattr__(self, "path", path)
        object.__setattr__(self, "sha256", sha256)

    def digest(self):
        return self.sha256  # wherever the file lies

    @functools.cached_property
    def description(self):
        """The file's content: the model's name and ``tasks``, of each ``name``, ``count``, ``flop``, ``file``,
        ``sha256``, whether it is ``tuned``, and ``default_ms``, the latency of a default schedule that is no configuration;
        and ``winograd``, the convolutions computed so (`winograd.shape_of` -> m)."""
        return json.loads(Path(self.path).read_text(encoding="utf-8"))

    @functools.cached_property
    def tasks(self):
        """Name -> `Program`."""
        folder = Path(self.path).parent
        return {each["name"]: Program(str(folder / each["file"]), each["sha256"]) for each in self.description["tasks"]}

    @functools.cached_property
    def counts(self):
        """Name -> how often a run of the network runs the task."""
        return {each["name"]: each["count"] for each in self.description["tasks"]}

    @functools.cached_property
    def flop(self):
        """Name -> floating-point operations of a run of the task."""
        return {each["name"]: each["flop"] for each in self.description["tasks"]}

    @functools.cached_property
    def tuned(self):
        """Name -> `Program` of the tasks that are searched; the others are left at their default schedules."""
        return {each["name"]: self.tasks[each["name"]] for each in self.description["tasks"] if each["tuned"]}

    def scheduling(self):
        """What `TaskScheduler` is to know of the tuned tasks, as its arguments."""
        chosen = [each for each in self.description["tasks"] if each["tuned"]]
        arguments = {"counts": "count", "flop": "flop", "defaults": "default_ms"}
        return {key: {each["name"]: each[field] for each in chosen if each.get(field)} for key, field in arguments.items()}

    def search_space(self, device, extended=False):
        branches = [{"_name": name, **task.search_space(device, extended)} for name, task in self.tuned.items()]
        return {TASK: {"_type": "choice", "_value": branches}}

    def constraints(self, device, extended=False):
        by_task = {name: task.constraints(device, extended) for name, task in self.tuned.items()}
        texts = {}  # constraint -> the tasks that have it
        for name, constraints in by_task.items():
            for text in constraints:
                texts.setdefault(re.sub(rf"\b{SKETCH}\.", rf"{TASK}.{SKETCH}.", text), []).append(name)
        return [_only_for(names, text, len(by_task)) for text, names in texts.items()]

    def settler(self, device):
        settlers = {}

        def settle(config):
            name = config[TASK]["_name"]
            if name not in settlers:
                settlers[name] = self.tasks[name].settler(device)
            built = settlers[name](_without_task(config))
            return None if built is None else configuration(name, built)

        return settle

    def first(self, device):
        return [configuration(name, config) for name, task in self.tuned.items() for config in task.first(device)]

    def part(self, config):
        return self.tasks[config[TASK]["_name"]], _without_task(config)

    def config_of(self, record):
        """That of the tuned task that is the same program, whatever it was part of; None of a schedule that no search can have."""
        name = self._name_of(record)
        return configuration(name, own_config(record)) if name in self.tuned and own_config(record) != DLIGHT else None

    def latencies(self, records):
        """Task's name -> the lowest latency in ms that records have of it, of those that have one."""
        best = {}
        for record in records:
            name = self._name_of(record)
            if name is not None and record.get("error_code") == 0:
                best[name] = min(best.get(name, record["latency_ms"]), record["latency_ms"])
        return best

    def estimate(self, latencies):
        """The latency of the network in ms (Bansor, equation 1): the sum of count times latency.

        A task that nothing is known of counts as much for an operation as those that are known in the mean.
        """
        known = sum(self.flop[name] for name in latencies)
        mean = sum(latencies.values()) / known if known else 0.0
        return sum(count * latencies.get(name, mean * self.flop[name]) for name, count in self.counts.items())

    def by_task(self, records):
        """Task's name -> its records, whatever they were part of."""
        found = {}
        for record in records:
            if (name := self._name_of(record)) is not None:
                found.setdefault(name, []).append(record)
        return found

    def _name_of(self, record):
        """The name of the task here that a record's program is; None if it is none of them."""
        workload = record.get("workload") or {}
        if not record.get("cold") or not isinstance(record.get("config"), dict) or workload.get("operator") != "program":
            return None  # timed with warm caches, it tells little of what a network takes
        sha256 = workload["sha256"]
        if sha256 not in self._names:  # the same program of another model may have other names inside
            try:
                self._names[sha256] = self._names_by_structure.get(structure(Program(workload["path"], sha256)))
            except ValueError:  # its file is gone
                self._names[sha256] = None
        return self._names[sha256]

    @functools.cached_property
    def _names(self):
        return {task.sha256: name for name, task in self.tasks.items()}

    @functools.cached_property
    def _names_by_structure(self):
        return {structure(task): name for name, task in self.tasks.items()}


def structure(program):
    """What programs have alike that differ in nothing but the names inside."""
    import tvm_ffi

    return tvm_ffi.structural_hash(program.source)


def configuration(name, config):
    """A network's configuration, of a task's."""
    return {TASK: {"_name": name, **config}}


def own_config(record):
    """The configuration of the program that a record is of, which may have been part of a network."""
    return _without_task(record["config"]) if TASK in record["config"] else record["config"]


def _without_task(config):
    return {name: value for name, value in config[TASK].items() if name != "_name"}


def _only_for(names, text, tasks):
    """A constraint that says nothing about other tasks than these."""
    if len(names) == tasks:
        return text
    return f"{TASK}._name not in {json.dumps(names)} or ({text})"
