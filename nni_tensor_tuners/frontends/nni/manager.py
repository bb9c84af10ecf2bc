"""NNI's experiment manager: starting it by nnictl, watching it, stopping it."""

import contextlib
import os
import re
import socket
import subprocess
import sys
import time
from importlib.resources import files
from pathlib import Path

from ...measure.lock import only_one
from ...search.registry import SEARCHES
from ...tasks.shared import shared_folder
from . import rest
from .folders import known_experiments

ALGORITHMS = files("nni_tensor_tuners") / "algorithms.yml"
# It gives a manager that does not answer 80 s; with a library of another version than it asks for, it can wait for ever.
NNICTL_SECONDS = 300
# What the manager loads before its own code.
PRELOADED = (
    files("nni_tensor_tuners") / "listen_on_loopback.js",
    Path(__file__).parent / "poll_often.js",
    Path(__file__).parent / "show_nested_choices.js",
)


class NnictlError(OSError):
    """nnictl did not do what it was asked; the message is its own last word."""


def nnictl(*arguments, environment=None):
    """Run nnictl of this Python's installation, and return what it printed; `NnictlError` if it fails."""
    command = [sys.executable, "-m", "nni.tools.nnictl.nnictl", *arguments]  # whatever nnictl the PATH finds
    # nnictl warns about its own use of pkg_resources on every call.
    environment = {**os.environ, "PYTHONWARNINGS": "ignore", **(environment or {})}
    # A session of its own: a Ctrl-C in the terminal is for us to act on, once nnictl has done its work.
    options = {"env": environment, "capture_output": True, "text": True, "start_new_session": True, "timeout": NNICTL_SECONDS}
    try:
        done = subprocess.run(command, check=False, **options)
    except subprocess.TimeoutExpired:
        raise NnictlError(f"nnictl {arguments[0]}: it has not ended in {NNICTL_SECONDS:g} s") from None
    printed = re.sub(r"\x1b\[\d*m", "", done.stdout + done.stderr)
    said = re.search(r"\bERROR: (.+)", printed)
    if said or done.returncode != 0:
        lines = [line for line in printed.splitlines() if line.strip()]
        raise NnictlError(f"nnictl {arguments[0]}: {said.group(1) if said else (lines or ['it failed'])[-1]}")
    return printed


def _only_nnictl():
    """One of them at a time: another would read what is registered while it is being written."""
    return only_one(shared_folder() / "nnictl.lock")


def algorithms():
    """What ``algorithms.yml`` has, for `nnictl algo register --meta`: every search of the table as an NNI tuner."""
    return {
        "algorithms": [
            {
                "algoType": "tuner",
                "builtinName": entry.nni_name,
                "className": "nni_tensor_tuners.tuner.TensorTuner",
                "classArgs": {"search": entry.name},
            }
            for entry in SEARCHES.values()
        ]
    }


def register():
    """Register every search with NNI, as ``nnictl algo register --meta`` does; returns the names."""
    with _only_nnictl():
        printed = nnictl("algo", "register", "--meta", str(ALGORITHMS))
    return re.findall(r"^(\w+) registered", printed, re.MULTILINE)


@contextlib.contextmanager
def _free_port(first=8080):
    """The first port from ``first`` on, in steps of two, such that nobody on this machine listens on it or on the next one.

    NNI's manager listens on both where trials run on other machines, on the second only some time after it has started. Until the
    context ends nobody else who asks here is given the same: a claim is a name of the machine's network, as a port is, whoever's
    process it is. (Two managers sent to one port would not notice: nnictl takes the other's answer for its own.)
    """
    for port in range(first, 65535, 2):
        with socket.socket(socket.AF_UNIX) as claim:
            try:
                claim.bind(f"\0nni_tensor_tuners port {port}")
                with socket.socket() as probe, socket.socket() as next_probe:
                    probe.bind(("127.0.0.1", port))
                    next_probe.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            yield port
            return
    raise OSError("no free port")


class Manager:
    """A running experiment.

    Attributes
    ----------
    experiment_id
        As nnictl knows it.
    url
        Of the web UI.
    pid
        Of the manager's process.
    folder
        Where the experiment keeps its records, database and logs.
    """

    def __init__(self, experiment_id, port):
        self.experiment_id = experiment_id
        self.url = f"http://127.0.0.1:{port}"
        known = known_experiments()[experiment_id]
        self.pid = int(known["pid"])
        self.folder = Path(known["logDir"]) / experiment_id

    @classmethod
    def create(cls, path, port=None):
        """``nnictl create``, web UI and REST API on 127.0.0.1 only, by default on the first free port of 8080, 8082, ..."""
        return cls._start(port, "create", "--config", str(path))

    @classmethod
    def resume(cls, experiment_id, port=None):
        """``nnictl resume``, likewise."""
        return cls._start(port, "resume", experiment_id)

    @classmethod
    def _start(cls, port, *arguments):
        options = " ".join([os.environ.get("NODE_OPTIONS", ""), *(f'--require="{path}"' for path in PRELOADED)]).strip()
        # Trials run the Python that nnictl runs, whatever python3 the caller's PATH finds.
        path_variable = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        environment = {"NODE_OPTIONS": options, "PATH": path_variable}
        with _only_nnictl():
            given, first = port, 8080
            while True:
                with contextlib.nullcontext(given) if given else _free_port(first) as port:
                    try:
                        printed = nnictl(*arguments, "--port", str(port), environment=environment)
                        break
                    except NnictlError as error:
                        if given or "is not idle" not in str(error):
                            raise
                first = port + 2  # somebody who does not ask here has taken it meanwhile
        match = re.search(r"Experiment ID: (\w+)", printed)
        if match is None:
            raise NnictlError(f"nnictl {arguments[0]}: it named no experiment")
        return cls(match.group(1), port)

    def status(self):
        """NNI's status ("RUNNING", "DONE", "ERROR", ...); None if the manager does not answer."""
        try:
            return rest.request(f"{self.url}/api/v1/nni/check-status")["status"]
        except (OSError, ValueError):
            return None

    def max_trials(self):
        """The experiment's maxTrialNumber, None if it has none."""
        return rest.request(f"{self.url}/api/v1/nni/experiment")["params"].get("maxTrialNumber")

    def stop(self):
        """``nnictl stop``; returns once the manager's process, and with it every trial, has ended."""
        if self.is_alive():
            nnictl("stop", self.experiment_id)
        while self.is_alive():
            time.sleep(0.1)

    def is_alive(self):
        """Whether the manager's process exists."""
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        return not _is_zombie(self.pid)


def _is_zombie(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return False
