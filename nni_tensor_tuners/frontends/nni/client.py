"""A trial's side of NNI: which configuration is mine, and here is its result.

NNI 3.0 hands parameters to trials in the order in which they ask, not to the trial they were made for, while its database, its
web UI and its export go by the latter. So the parameters are not asked for but looked up: the manager's REST API knows them
by trial. The result then carries the right parameter id, and no other trial, dead or slow, can shift them.

Speaking the two requests of the protocol also saves every trial the import of the nni package (0.7 s, 145 MB). On training
services without an HTTP channel the nni package is used after all.

With the training service ``remote`` the channel leads to NNI's trial keeper, a process on the trial's own machine; the keeper's
settings name the manager, to which it keeps a connection on the very port that the REST API has.
"""

import json
import os
import time
from pathlib import Path

from . import rest

# How long a trial waits for the manager to have written it down, which happens right after it started it.
PARAMETER_SECONDS = 60


class NniClient:
    """The experiment manager, as seen by the trial that this process is."""

    def __init__(self, environment=os.environ):
        self.channel = environment.get("NNI_TRIAL_COMMAND_CHANNEL", "")
        self.trial_job_id = environment["NNI_TRIAL_JOB_ID"]
        self.experiment_id = environment["NNI_EXP_ID"]
        self.sequence_id = int(environment.get("NNI_TRIAL_SEQ_ID", -1))
        output = Path(environment["NNI_OUTPUT_DIR"])
        self.manager = self.channel.split("/env/")[0] if self._speaks_http() else None
        if environment.get("NNI_PLATFORM") == "remote":
            self.manager = _manager_of_keeper(output.parents[1])
        self.experiment_folder = next((p for p in output.parents if p.name == self.experiment_id), output)
        self.parameter_id = None

    @staticmethod
    def is_trial(environment=os.environ):
        """Whether this process was started by NNI as a trial."""
        return "NNI_TRIAL_JOB_ID" in environment

    def parameters(self):
        """This trial's configuration.

        Raises
        ------
        TimeoutError
            If the manager does not know the trial within ``PARAMETER_SECONDS``.
        """
        record = self._look_up() if self.manager else self._receive()
        self.parameter_id = record["parameter_id"]
        return record["parameters"]

    def report_final(self, metric):
        """Report the result: a number, or a dict with the number under ``default``."""
        if not self._speaks_http():
            import nni

            nni.report_final_result(metric)
            return
        body = {
            "parameter_id": self.parameter_id,
            "trial_job_id": self.trial_job_id,
            "type": "FINAL",
            "sequence": 0,
            "value": json.dumps(metric),
        }
        rest.request(self.channel, "PUT", {"type": "metric", "metric": json.dumps(body)})

    def _speaks_http(self):
        return self.channel.startswith("http://") and "/env/" in self.channel

    def _look_up(self):
        url = f"{self.manager}/api/v1/nni/trial-jobs/{self.trial_job_id}"
        deadline = time.monotonic() + PARAMETER_SECONDS
        while True:
            job = rest.request(url)
            if job and job.get("hyperParameters"):
                return json.loads(job["hyperParameters"][0])
            if time.monotonic() > deadline:
                raise TimeoutError(f"NNI's manager does not know the parameters of trial {self.trial_job_id}")
            time.sleep(0.02)

    @staticmethod
    def _receive():
        import nni

        nni.get_next_parameter()
        return nni.trial._params


def _manager_of_keeper(folder):
    """The manager's address, from the settings of the latest trial keeper in an environment's folder; None if it has none."""
    settings = folder.glob("trial_keeper*/trial_keeper_config.json")  # a resumed experiment starts another one
    latest = max(settings, key=lambda path: path.stat().st_mtime, default=None)
    if latest is None:
        return None
    channel = json.loads(latest.read_text(encoding="utf-8"))["managerCommandChannel"]  # ws://HOST:PORT[/PREFIX]/platform/...
    return "http" + channel.removeprefix("ws").split("/platform/")[0]
