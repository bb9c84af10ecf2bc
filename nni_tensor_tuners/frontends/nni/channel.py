"""The manager of the experiment that this process, the dispatcher, belongs to."""

import json
import logging
import os

from nni.runtime.tuner_command_channel import CommandType, TunerCommandChannel

from . import rest

_log = logging.getLogger(__name__)

# A trial's last states; resuming gives the others a state of its own, ADD_RESUMED.
ENDED = ("SUCCEEDED", "FAILED", "USER_CANCELED", "SYS_CANCELED", "EARLY_STOPPED")


def report_error(message):
    """Report an error as the dispatcher would. Left to find out by itself, the manager hopes for 30 s that we come back."""
    try:
        channel = TunerCommandChannel(os.environ["NNI_TUNER_COMMAND_CHANNEL"])
        channel.connect()
        channel._send(CommandType.Error, message)
    except Exception as failure:  # the manager may be the reason why we end
        _log.warning("could not report the error to NNI's manager: %s", failure)


def configs_that_run_again():
    """The configurations of trials that had not ended when the experiment stopped: NNI starts those again itself."""
    return [
        json.loads(job["hyperParameters"][0])["parameters"]
        for job in rest.request(f"{_url()}/trial-jobs")
        if job["status"] not in ENDED and job.get("hyperParameters")
    ]


def end_experiment():
    """Have an exhausted experiment end as DONE: NNI does so only once its trial limit is reached, so lower that."""
    try:
        profile = rest.request(f"{_url()}/experiment")
        profile["params"]["maxTrialNumber"] = len(rest.request(f"{_url()}/trial-jobs"))
        rest.request(f"{_url()}/experiment?update_type=MAX_TRIAL_NUM", "PUT", profile)
    except OSError as error:
        _log.error("could not end the exhausted experiment: %s", error)


def _url():
    channel = os.environ["NNI_TUNER_COMMAND_CHANNEL"]  # ws://localhost:PORT[/PREFIX]/tuner
    return "http" + channel.removeprefix("ws").removesuffix("/tuner") + "/api/v1/nni"
