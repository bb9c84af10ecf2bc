"""The one NNI tuner: any search's study, driven by NNI's dispatcher."""

import functools
import logging
import os
import sys
import threading
from pathlib import Path

from nni.tuner import Tuner

from ...study import Study, records
from . import channel
from .folders import sources_of
from .settings import make_search, objective_of, read_histories, task_of

_log = logging.getLogger("nni.tensor_tuners")


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
            if self._folder is not None:
                records.append(self._folder / records.JOURNAL, {"event": "error", "message": message})
            channel.report_error(message)
            logging.shutdown()
            os._exit(1)

    return guarded


class TensorTuner(Tuner):
    """Any search as an NNI tuner. What it cannot do right it does not do: it ends the experiment, and says why in the log.

    Parameters
    ----------
    search
        Name of the search; the registration sets it.
    class_args
        The arguments of `settings.ARGUMENTS`, and the search's own (`search.registry`).
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
        checkpoint = os.environ.get("NNI_CHECKPOINT_DIRECTORY")
        self._folder = Path(checkpoint).parent if checkpoint else None
        self._study = None
        self._objective = None
        self._waiting = []  # parameter ids that were asked for when no configuration could be proposed
        self._serve = None
        self._ending = False
        self._skip_import = False

    @_ends_experiment_on_error
    def update_search_space(self, search_space):
        search = make_search(self._name, search_space, self._class_args)
        self._objective = objective_of(self._class_args)
        if transfer := self._class_args.get("transfer"):
            sources = [self._locate("transfer", str(source)) for source in sources_of(transfer)]
            search.transfer(read_histories(sources, self._objective, search.transfer_features))
        if self._study is not None:
            self._study.move_to(search)
            self._serve_waiting()
            return
        journal = self._folder and self._folder / records.JOURNAL
        task, device = task_of(self._class_args)
        known = {}
        if task is not None:
            describe = functools.partial(task.describer, device)
            known = {"settle": task.settler(device), "first": task.first(device), "describe": describe}
        self._study = Study(search, journal, **known)
        for source in sources_of(self._class_args.get("warm_start") or []):
            found = self._locate("warm_start", str(source))
            known_of = {} if task is None else {"known_of": task.config_of}
            self._study.warm_start(records.history(records.read(found), self._objective, **known_of))
            _log.info("warm start: %d results known, with those of %s", len(search.results), found)
        if os.environ.get("NNI_MODE") == "resume":
            recorded = [(r["config"], self._objective.of_record(r), r.get("parameter_id")) for r in self._records()]
            # NNI's own account of a resumed experiment pairs results with the wrong parameters; the journal knows better.
            self._skip_import = self._study.resume(recorded, channel.configs_that_run_again)

    @_ends_experiment_on_error
    def generate_multiple_parameters(self, parameter_id_list, st_callback=None, **_):
        self._serve = st_callback
        configs = self._study.ask(parameter_id_list)
        self._waiting += parameter_id_list[len(configs) :]
        self._end_if_exhausted()
        return configs

    @_ends_experiment_on_error
    def receive_trial_result(self, parameter_id, parameters, value, trial_job_id=None, **_):
        config = self._study.tell(parameter_id, self._objective.fitness(value), value, parameters)
        if config is not None:
            self._complete(config, parameter_id, value, trial_job_id=trial_job_id)
        self._trial_is_over()

    @_ends_experiment_on_error
    def trial_end(self, parameter_id, success, **_):
        config = self._study.pending.get(parameter_id)
        if config is None:
            return  # its result came first, or it is none of ours
        # It may have recorded its result and died before it could report. Or the result is still on its way over another queue;
        # then it will count more than this failure.
        recorded = (record for record in self._records() if record["config"] == config and record.get("error_code") == 0)
        self._study.tell(parameter_id, next(map(self._objective.of_record, recorded), None))
        message = "the trial ended without a result" if success else "the trial died or was stopped without a result"
        self._record(config, parameter_id, error_code=8, error=message)
        self._trial_is_over()

    @_ends_experiment_on_error
    def import_data(self, data):
        if self._skip_import:
            self._skip_import = False
            return
        for entry in data:
            config, value = entry["parameter"], entry["value"]
            self._study.tell(None, self._objective.fitness(value), value, config)
            if config in self._study.rerun:  # its trial has told its result this way
                self._complete(config, None, value)

    def _trial_is_over(self):
        self._serve_waiting()
        self._end_if_exhausted()

    def _serve_waiting(self):
        """NNI never asks again for a parameter that it did not get: it is sent once there is one."""
        while self._waiting and (configs := self._study.ask(self._waiting[:1])):
            self._serve(self._waiting.pop(0), configs[0])

    def _end_if_exhausted(self):
        if self._study.exhausted and not self._study.pending and not self._ending:
            self._ending = True
            # On a thread of its own, so that results are not kept waiting while the manager answers.
            threading.Thread(target=channel.end_experiment, daemon=True).start()

    def _complete(self, config, parameter_id, value, **fields):
        """Record a result as it was told, if its trial has not."""
        metric = value if isinstance(value, dict) else {"default": value}
        if self._objective.fitness(value) is not None:
            known = {self._objective.field: float(metric["default"]), **metric}
            self._record(config, parameter_id, **{**known, **fields, "error_code": 0})
        else:
            code = metric.get("error_code")
            complaint = self._objective.complaint(value)
            self._record(config, parameter_id, **fields, error_code=code if code in range(1, 9) else 8, error=complaint)

    def _record(self, config, parameter_id, **fields):
        if self._folder is not None:
            records.complete(self._folder / records.RECORDS, {"parameter_id": parameter_id, "config": config, **fields})

    def _records(self):
        found = records.read(self._folder / records.RECORDS) if self._folder is not None else []
        return [record for record in found if "config" in record]

    def _locate(self, field, source):
        found = records.locate(source)
        if found is None and self._folder is not None:  # experiments' folders stand side by side, named by their ids
            found = records.locate(self._folder.parent / source)
        if found is None:
            raise ValueError(f"{field}: no records at {source!r}; give an experiment's id, its folder or its records file")
        return found


def _show_logs_of_searches():
    """Send what searches log to where NNI logs: ``log/dispatcher.log`` in the experiment's folder."""
    ours, nnis = logging.getLogger(__package__.partition(".")[0]), logging.getLogger("nni")
    ours.setLevel(logging.INFO)
    for handler in nnis.handlers:
        ours.addHandler(handler)  # once, however often it is called
