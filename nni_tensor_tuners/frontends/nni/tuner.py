"""The one NNI tuner that wraps every search."""

import functools
import json
import logging
import math
import os
import sys
import threading
import time
from pathlib import Path

from nni.runtime.tuner_command_channel import CommandType, TunerCommandChannel
from nni.tuner import Tuner

from . import records, rest
from .device import KINDS, kind_of
from .search import Exhausted, arguments_of, check_names, create_search
from .space import SearchSpace

_log = logging.getLogger("nni.tensor_tuners")

OPTIMIZE_MODES = ("maximize", "minimize")
TUNER_ARGS = ("optimize_mode", "constraints", "target", "warm_start", "transfer")
# A trial's last states; resuming gives the others a state of its own, ADD_RESUMED.
ENDED = ("SUCCEEDED", "FAILED", "USER_CANCELED", "SYS_CANCELED", "EARLY_STOPPED")


def make_search(search, search_space, class_args, kind=None):
    """The search that an experiment's tuner settings describe.

    Parameters
    ----------
    search
        A search's name.
    search_space
        NNI search-space JSON.
    class_args
        The YAML's ``classArgs``; see `TensorTuner`.
    kind
        The device kind whose constraints count, where they are given by kind; None finds the device.

    Raises
    ------
    ValueError
        In one line that names the bad field.
    """
    own = {name: value for name, value in class_args.items() if name not in TUNER_ARGS}
    check_names(f"{search} has no argument", own, [*arguments_of(search), "seed", *TUNER_ARGS])
    mode = class_args.get("optimize_mode", "maximize")
    if mode not in OPTIMIZE_MODES:
        raise ValueError(f"optimize_mode must be one of {', '.join(OPTIMIZE_MODES)}, got {mode!r}")
    constraints = class_args.get("constraints") or []
    if isinstance(constraints, dict):
        check_names("constraints: there is no device kind", constraints, KINDS)
        constraints = constraints.get(kind or kind_of(class_args.get("target", "auto"))) or []
    if not isinstance(constraints, list):
        raise ValueError(f"constraints: expected a list, or lists by device kind ({', '.join(KINDS)}), got {constraints!r}")
    return create_search(search, SearchSpace.from_json(search_space, constraints), **own)


def fitness_of(value, optimize_mode="maximize"):
    """The fitness (higher is better) of a metric as NNI delivers it, or None if it says that the trial failed.

    ``minimize`` takes the reciprocal: strictly decreasing, and positive, so that fitness-proportional selection (OpEvo
    equation 2) works on latencies as on TFLOPS. What is to be minimised must be positive.
    """
    if isinstance(value, dict):
        if value.get("error_code"):
            return None
        value = value.get("default")
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        value = float(value)
    except ValueError:
        return None
    if not math.isfinite(value) or (optimize_mode == "minimize" and value <= 0):
        return None
    return 1 / value if optimize_mode == "minimize" else value


def recorded_fitness(record, optimize_mode="maximize"):
    """The fitness of a line of a records file, or None if the trial failed."""
    metric = "tflops" if optimize_mode == "maximize" else "latency_ms"
    return fitness_of({"default": record.get(metric), "error_code": record.get("error_code")}, optimize_mode)


def read_histories(paths, optimize_mode="maximize"):
    """Records of earlier experiments as `Search.transfer` takes them: a list of (configuration, fitness) for each path."""
    return [
        [(record["config"], recorded_fitness(record, optimize_mode)) for record in records.read(path) if "config" in record]
        for path in map(records.locate, paths)
    ]


def _ends_experiment_on_error(method):
    """A method that raises ends the tuner's process. NNI would log the error and leave the experiment RUNNING for ever."""

    @functools.wraps(method)
    def guarded(self, *args, **kwargs):
        try:
            with self._lock:
                return method(self, *args, **kwargs)
        except Exception as error:
            message = f"{type(error).__name__}: {error}" if not isinstance(error, ValueError) else str(error)
            _log.critical("tensor-tuners: %s", message, exc_info=True)
            print(f"tensor-tuners: {message}", file=sys.stderr, flush=True)
            self._note(event="error", message=message)
            _tell_manager(message)
            logging.shutdown()
            os._exit(1)

    return guarded


class TensorTuner(Tuner):
    """Any search as an NNI tuner. What it cannot do right it does not do: it ends the experiment, and says why in the log.

    Parameters
    ----------
    search
        Name of the search; the registration sets it.
    optimize_mode
        "maximize" (default) or "minimize".
    constraints
        List of expressions over the parameters, or a dict of such lists by device kind ("cuda", "cpu").
    target
        The device whose constraints count, if they are given by kind: "cuda", "cpu", or "auto" (default), which is what trials
        with ``--target auto`` run on.
    seed
        Integer, default 0.
    warm_start
        An earlier experiment's id, folder or records file; what it measured in this space is known from the start.
    transfer
        One or several such sources of other shapes or devices, for a search that learns from them (AutoTVM).
    search_args
        The search's own arguments.
    """

    def __init__(self, search, **class_args):
        super().__init__()
        # NNI hides the GPUs from tuners unless tunerGpuIndices is set; the constraints are for what the trials will see.
        if os.environ.get("CUDA_VISIBLE_DEVICES") == "":
            del os.environ["CUDA_VISIBLE_DEVICES"]
        _show_logs_of_searches()
        self._lock = threading.RLock()  # trial_end is called on a thread of its own
        self._name = search
        self._class_args = class_args  # checked once the search space is there, when an error can end the experiment
        self._mode = class_args.get("optimize_mode", "maximize")
        checkpoint = os.environ.get("NNI_CHECKPOINT_DIRECTORY")
        self._folder = Path(checkpoint).parent if checkpoint else None
        self._search = None
        self._configs = {}  # parameter id -> configuration, since the dispatcher may pass none or another
        self._running = set()  # parameter ids without a result or an end so far
        self._waiting = []  # parameter ids that were asked for when no configuration could be proposed
        self._rerun = []  # configurations of trials that NNI, resumed, runs again
        self._requeued = []  # configurations proposed before a stop that never became trials
        self._serve = None
        self._exhausted = False
        self._ending = False
        self._skip_import = False

    @_ends_experiment_on_error
    def update_search_space(self, search_space):
        before = self._search
        self._search = make_search(self._name, search_space, self._class_args)
        if transfer := self._class_args.get("transfer"):
            sources = transfer if isinstance(transfer, list) else [transfer]
            self._search.transfer(read_histories([self._locate("transfer", str(s)) for s in sources], self._mode))
        if before is not None:
            self._exhausted = False
            for point, fitness in before.results.items():
                self._tell(before.space.config(point), fitness)
            for parameter_id in self._running:
                self._exclude(self._configs[parameter_id])
            self._serve_waiting()
            return
        if self._class_args.get("warm_start"):
            self._warm_start(str(self._class_args["warm_start"]))
        if os.environ.get("NNI_MODE") == "resume":
            self._resume()

    @_ends_experiment_on_error
    def generate_multiple_parameters(self, parameter_id_list, st_callback=None, **_):
        self._serve = st_callback
        start = time.perf_counter()
        configs = self._propose(len(parameter_id_list))
        seconds = (time.perf_counter() - start) / max(len(configs), 1)
        for parameter_id, config in zip(parameter_id_list, configs):
            self._hand_out(parameter_id, config, seconds)
        self._waiting += parameter_id_list[len(configs) :]
        self._end_if_exhausted()
        return configs

    @_ends_experiment_on_error
    def receive_trial_result(self, parameter_id, parameters, value, trial_job_id=None, **_):
        config = self._configs.get(parameter_id, parameters)
        if not isinstance(config, dict):
            _log.warning("result of the unknown parameter id %s ignored: %r", parameter_id, value)
            return
        fitness = fitness_of(value, self._mode)
        self._learn(config, fitness, value, parameter_id)
        self._complete(config, parameter_id, value, trial_job_id=trial_job_id)
        self._trial_is_over(parameter_id)

    @_ends_experiment_on_error
    def trial_end(self, parameter_id, success, **_):
        if parameter_id not in self._running:
            return  # its result came first, or it is none of ours
        config = self._configs[parameter_id]
        # It may have recorded its result and died before it could report. Or the result is still on its way over another queue;
        # then it will count more than this failure.
        recorded = (record for record in self._records() if record.get("config") == config and record.get("error_code") == 0)
        fitness = next(map(self._recorded_fitness, recorded), None)
        self._learn(config, fitness, None, parameter_id)
        message = "the trial ended without a result" if success else "the trial died or was stopped without a result"
        self._complete_records(config, parameter_id, None, error_code=8, error=message)
        self._trial_is_over(parameter_id)

    @_ends_experiment_on_error
    def import_data(self, data):
        if self._skip_import:
            # NNI's own account of a resumed experiment pairs results with the wrong parameters; the journal knows better.
            self._skip_import = False
            return
        for entry in data:
            self._learn(entry["parameter"], fitness_of(entry["value"], self._mode), entry["value"], None)
            if entry["parameter"] in self._rerun:  # its trial has told its result this way
                self._complete(entry["parameter"], None, entry["value"])

    # Proposing.

    def _propose(self, n):
        configs = self._requeued[:n]
        del self._requeued[:n]
        if len(configs) < n and not self._exhausted:
            try:
                configs += self._search.ask(n - len(configs))
            except Exhausted as reason:
                if not self._search.known:
                    raise ValueError("constraints: no configuration satisfies them") from None
                _log.info("%s", reason)
                self._exhausted = True
        return configs

    def _hand_out(self, parameter_id, config, seconds):
        self._configs[parameter_id] = config
        self._running.add(parameter_id)
        self._note(event="ask", parameter_id=parameter_id, parameters=config, seconds=round(seconds, 6))

    def _trial_is_over(self, parameter_id):
        self._running.discard(parameter_id)
        self._serve_waiting()
        self._end_if_exhausted()

    def _serve_waiting(self):
        """NNI never asks again for a parameter that it did not get: it is sent once there is one."""
        start = time.perf_counter()
        while self._waiting and (configs := self._propose(1)):
            waiting = self._waiting.pop(0)
            self._hand_out(waiting, configs[0], time.perf_counter() - start)
            self._serve(waiting, configs[0])
            start = time.perf_counter()

    def _end_if_exhausted(self):
        if self._exhausted and not self._running and not self._ending:
            self._ending = True
            # On a thread of its own, so that results are not kept waiting while the manager answers.
            threading.Thread(target=_end_experiment, daemon=True).start()

    # Learning.

    def _learn(self, config, fitness, value, parameter_id):
        self._note(event="tell", parameter_id=parameter_id, parameters=config, value=value, fitness=fitness)
        self._tell(config, fitness)

    def _tell(self, config, fitness):
        try:
            self._search.tell(config, fitness)
        except ValueError as error:  # from another space: a trial that a user added by hand, data imported
            _log.warning("result ignored: %s", error)

    def _complaint(self, value):
        needed = "; to be minimised, a value must be > 0" if self._mode == "minimize" and fitness_of(value) is not None else ""
        return f"the trial reported {value!r}{needed}"

    def _exclude(self, config):
        try:
            self._search.exclude(config)
        except ValueError as error:
            _log.warning("%s", error)

    def _complete(self, config, parameter_id, value, **fields):
        """Record a result as it was told."""
        if fitness_of(value, self._mode) is None:
            code = value.get("error_code") if isinstance(value, dict) else None
            fields |= {"error_code": code if code in range(1, 9) else 8, "error": self._complaint(value)}
        self._complete_records(config, parameter_id, value, **fields)

    def _complete_records(self, config, parameter_id, value, **fields):
        """Record a trial that did not do so itself: it died, it is not one of ours, or it ran on another machine."""
        if self._folder is None:
            return
        record = {"parameter_id": parameter_id, "config": config, "error_code": 0, **fields}
        known = [other for other in self._records() if other.get("config") == config]
        # A failure is news only about a configuration without a record; a success also after a failure recorded too early.
        if any(other.get("error_code") == 0 for other in known) or (known and record["error_code"] != 0):
            return
        metric = value if isinstance(value, dict) else {"default": value}
        ours = "tflops" if self._mode == "maximize" else "latency_ms"
        if record["error_code"] == 0:
            record = {ours: float(metric["default"]), **metric, **record}
        records.append(self._folder / records.RECORDS, record)

    def _records(self):
        return records.read(self._folder / records.RECORDS) if self._folder is not None else []

    # Surviving.

    def _note(self, **event):
        if self._folder is not None:
            records.append(self._folder / records.JOURNAL, event)

    def _resume(self):
        """Take up where the experiment was stopped or killed: every result counts, nothing measured is proposed again."""
        journal = records.read(self._folder / records.JOURNAL)
        self._skip_import = bool(journal)
        key = functools.partial(json.dumps, sort_keys=True)
        asked = {key(event["parameters"]): event["parameters"] for event in journal if event["event"] == "ask"}
        told = {}  # configuration -> whether it is known to succeed
        for event in journal:
            if event["event"] == "tell":
                name = key(event["parameters"])
                told[name] = told.get(name) or event["fitness"] is not None
                self._tell(event["parameters"], event["fitness"])
        for record in self._records():  # measured, but nobody was there to be told
            name, fitness = key(record["config"]), self._recorded_fitness(record)
            if name not in told or (fitness is not None and not told[name]):
                told[name] = fitness is not None
                self._learn(record["config"], fitness, None, record.get("parameter_id"))
        unfinished = {name: config for name, config in asked.items() if name not in told}
        rerun = {key(config) for config in _configs_that_nni_runs_again()} if unfinished else set()
        for name, config in unfinished.items():
            self._exclude(config)
            (self._rerun if name in rerun else self._requeued).append(config)
        _log.info("resumed: %d results, %d configurations proposed anew", len(told), len(self._requeued))

    def _warm_start(self, source):
        """Tell the search what an earlier experiment measured; ValueError if there is no such record."""
        found = self._locate("warm_start", source)
        for record in records.read(found):
            if "config" in record:
                self._tell(record["config"], self._recorded_fitness(record))
        _log.info("warm start: %d results from %s", len(self._search.results), found)

    def _locate(self, field, source):
        found = records.locate(source)
        if found is None and self._folder is not None:  # experiments' folders stand side by side, named by their ids
            found = records.locate(self._folder.parent / source)
        if found is None:
            raise ValueError(f"{field}: no records at {source!r}; give an experiment's id, its folder or its records file")
        return found

    def _recorded_fitness(self, record):
        return recorded_fitness(record, self._mode)


def _show_logs_of_searches():
    """Send what searches log to where NNI logs: ``log/dispatcher.log`` in the experiment's folder."""
    ours, nnis = logging.getLogger(__package__), logging.getLogger("nni")
    ours.setLevel(logging.INFO)
    for handler in nnis.handlers:
        ours.addHandler(handler)  # once, however often it is called


def _tell_manager(error):
    """Report an error as the dispatcher would. Left to find out by itself, the manager hopes for 30 s that we come back."""
    try:
        channel = TunerCommandChannel(os.environ["NNI_TUNER_COMMAND_CHANNEL"])
        channel.connect()
        channel._send(CommandType.Error, error)
    except Exception as failure:  # the manager may be the reason why we end
        _log.warning("could not report the error to NNI's manager: %s", failure)


def _manager_url():
    channel = os.environ["NNI_TUNER_COMMAND_CHANNEL"]  # ws://localhost:PORT[/PREFIX]/tuner
    return "http" + channel.removeprefix("ws").removesuffix("/tuner") + "/api/v1/nni"


def _configs_that_nni_runs_again():
    """The configurations of trials that had not ended when the experiment stopped: NNI starts those again itself."""
    return [
        json.loads(job["hyperParameters"][0])["parameters"]
        for job in rest.request(f"{_manager_url()}/trial-jobs")
        if job["status"] not in ENDED and job.get("hyperParameters")
    ]


def _end_experiment():
    """Have an exhausted experiment end as DONE: NNI does so only once its trial limit is reached, so lower that."""
    try:
        profile = rest.request(f"{_manager_url()}/experiment")
        profile["params"]["maxTrialNumber"] = len(rest.request(f"{_manager_url()}/trial-jobs"))
        rest.request(f"{_manager_url()}/experiment?update_type=MAX_TRIAL_NUM", "PUT", profile)
    except OSError as error:
        _log.error("could not end the exhausted experiment: %s", error)
