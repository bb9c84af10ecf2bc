"""What can be tuned: the contract between an operator and all that measures and searches."""

import hashlib
import json
from abc import ABC, abstractmethod
from dataclasses import MISSING, asdict, field


class Tunable(ABC):
    """What has a search space whose configurations are kernels: a `Task`, or a network of them.

    Subclasses are frozen dataclasses of plain fields: they compare by value, and `to_dict` is all there is to write down. Their
    modules import TVM and NumPy inside functions only, so that naming a task costs nothing: a trial that starts must not
    disturb one that times.

    Attributes
    ----------
    optimize_mode
        What a search is told of a measurement: "maximize", the TFLOPS; "minimize", the latency.
    cold
        How kernels are timed, `measure`'s argument.
    """

    optimize_mode = "maximize"
    cold = False

    @property
    @abstractmethod
    def operator(self):
        """The operator's name in the registry; of one from outside the package "package.module:Class"."""

    @property
    def id(self):
        """A short text that tells this task from all others, the same in every process: "matmul-1f0c2a9e"."""
        return f"{self.operator}-{self.digest()[:8]}"

    @abstractmethod
    def search_space(self, device, extended=False):
        """The parameters of a kernel on a device.

        Parameters
        ----------
        device
            A `Device`; of `device.GENERIC` for any of its kind.
        extended
            Whether to add what the papers' space does not have. A configuration without those parameters stays valid.

        Returns
        -------
        dict
            NNI's search-space JSON.

        Raises
        ------
        ValueError
            If the task does not run on that kind.
        """

    @abstractmethod
    def constraints(self, device, extended=False):
        """What a device can run, and run well.

        Parameters
        ----------
        device
            A `Device`.
        extended
            Whether the configurations are of the extended space.

        Returns
        -------
        list
            Expressions for `SearchSpace`.

        Raises
        ------
        ValueError
            If the task does not run on that kind.
        """

    def settler(self, device):
        """What is built where a configuration is asked for, known before a trial is spent, where constraints do not say all.

        Returns
        -------
        Function from a configuration to the one that is built: itself, another one whose kernel is the same, or None where
        none can be built. It may remember what it was asked.
        """
        return lambda config: config

    def describer(self, device, features):
        """Function from a configuration to the features of its program, a vector; None where it cannot be built.

        Parameters
        ----------
        features
            One of `tasks.features.FEATURES`.
        """
        from .features import describer
        from .target import target_of

        def module_of(config):
            task, own_config = self.part(config)
            return task.built(own_config, device)

        return describer(features, module_of, target_of(device))

    def first(self, device):
        """Configurations that are known to be sound without measuring; a study begins with them."""
        return []

    def part(self, config):
        """The `Task` whose kernel a configuration is, and that task's configuration of it."""
        return self, config

    def config_of(self, record):
        """The configuration here of what a record is of; None of something else."""
        return record.get("config")

    def to_dict(self):
        """The task as plain data, for JSON: its operator and its fields. `registry.from_dict` reads it."""
        return {"operator": self.operator, **asdict(self)}

    def digest(self):
        """SHA-256 of the task's plain data, in hexadecimal digits."""
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()


class Task(Tunable):
    """An operator, or any other tensor program, at a fixed shape.

    Attributes
    ----------
    tolerance
        The largest error of an output that is right, relative to the largest expected output. Rounding of float32 sums of K
        products of numbers in [-1, 1) stays near sqrt(K) * 1e-7, far below 1e-4 of the largest output; one product left out or
        added is some hundred times above it.
    numpy
        Whether the reference is NumPy's: kernels are timed beside it then.
    """

    tolerance = 1e-4
    numpy = True

    @property
    @abstractmethod
    def flop(self):
        """Floating-point operations of one run, a multiplication and an addition counted as two."""

    @property
    @abstractmethod
    def buffers(self):
        """Names of the kernel's buffers, the output's last."""

    @property
    @abstractmethod
    def shapes(self):
        """Shapes of the buffers, in the same order."""

    @property
    def dtypes(self):
        """Element types of the buffers, in the same order, as TVM calls them."""
        return ["float32"] * len(self.shapes)

    @abstractmethod
    def inputs(self, seed=0):
        """NumPy arrays for all buffers but the output's, the same for the same seed."""

    @abstractmethod
    def reference(self, *inputs, out=None):
        """The expected output, written to ``out`` where one is given."""

    @abstractmethod
    def module(self, config, device):
        """The scheduled ``tvm.IRModule`` of a configuration, its kernel named "main".

        Raises
        ------
        Exception
            Whatever TVM raises (its ScheduleError is no ValueError).
        """

    def built(self, config, device):
        """The module that is built where a configuration is asked for (`settler`); raises as `module`."""
        return self.module(config, device)

    def imports(self, device):
        """Names of modules that building a configuration needs besides TVM, where importing them takes seconds."""
        return ()


class TemplateTask(Task):
    """A task that hand-written templates schedule, one for each kind of device.

    Attributes
    ----------
    templates
        Device kind -> module with ``extras(task)`` (the parameters that the extended space adds), ``constraints(task, device,
        extended)`` and ``schedule(task, config, device)``, which returns an ``s_tir.Schedule``; and, where a rule knows one,
        ``sound(task, device)``, a configuration.
    """

    templates = {}

    @abstractmethod
    def space(self):
        """NNI's search-space JSON of the papers, which all devices share, so that one file serves them all."""

    def search_space(self, device, extended=False):
        template = self._template(device.kind)
        return {**self.space(), **(template.extras(self) if extended else {})}

    def constraints(self, device, extended=False):
        return self._template(device.kind).constraints(self, device, extended)

    def module(self, config, device):
        return self.schedule(config, device).mod

    def schedule(self, config, device, **program):
        """The ``s_tir.Schedule`` of a configuration; ``program`` as the template takes it."""
        return self._template(device.kind).schedule(self, config, device, **program)

    def sound(self, device):
        """A configuration that is sound, known without measuring; None where no rule knows one."""
        rule = getattr(self._template(device.kind), "sound", None)
        return rule and rule(self, device)

    def _template(self, kind):
        if kind not in self.templates:
            raise ValueError(f"no template for {self.operator} on {kind}; there are those for {', '.join(self.templates)}")
        return self.templates[kind]


def shape_field(text, default=MISSING, least=1, choices=None):
    """A dataclass field that is part of a task's shape, and so an argument on command lines.

    Parameters
    ----------
    text
        One line of help.
    default
        Its default value, if it has one.
    least
        The least integer allowed.
    choices
        The values allowed, of a field that is no integer.
    """
    return field(default=default, metadata={"help": text, "least": least, "choices": choices})
