"""Where experiments left what they measured. Read without the nni package, which takes over logging when it is imported."""

import json
import time
from pathlib import Path

from ...study import records


def known_experiments():
    """What nnictl keeps of experiments, by id; OSError if its list is damaged."""
    path = Path("~/nni-experiments/.experiment").expanduser()
    for _ in range(20):
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except ValueError:  # caught in the middle of being written
            time.sleep(0.05)
    raise OSError(f"nnictl's list of experiments is damaged: {path}")


def all_records():
    """The records files of all experiments that nnictl knows."""
    found = (Path(known["logDir"]) / name / records.RECORDS for name, known in known_experiments().items())
    return [path for path in found if path.is_file()]


def find_folder(experiment=None):
    """The folder of an experiment, by its id or by a path; the latest one for None.

    Raises
    ------
    ValueError
        If there is none, or nothing has been recorded in it.
    """
    home = Path("~/nni-experiments").expanduser()
    named = Path(experiment).expanduser() if experiment else home / "_latest"
    candidates = [named, named.parent if named.name == records.RECORDS else named]
    if experiment in (known := known_experiments()):
        candidates.append(Path(known[experiment]["logDir"]) / experiment)
    folder = next((c for c in candidates if (c / records.RECORDS).is_file()), None)
    if folder is None:
        what = f"'{experiment}'" if experiment else "a latest experiment"
        raise ValueError(f"experiment: no records of {what} found; give an experiment's id or its folder")
    return folder.resolve()


def sources_of(named):
    """``transfer`` or ``warm_start`` as a list: it may name one source or several."""
    return named if isinstance(named, list) else [named]


def resolve_sources(folder, class_args):
    """A tuner's ``classArgs`` with absolute paths for the earlier records that ``warm_start`` and ``transfer`` name.

    They may be named relative to the experiment file, which is in ``folder``.

    Raises
    ------
    ValueError
        If there is no such record.
    """
    resolved = dict(class_args)
    if "warm_start" in class_args:
        resolved["warm_start"] = [_resolve(folder, "warm_start", source) for source in sources_of(class_args["warm_start"])]
    if "transfer" in class_args:
        resolved["transfer"] = [_resolve(folder, "transfer", source) for source in sources_of(class_args["transfer"])]
    return resolved


def _resolve(folder, field, source):
    if not isinstance(source, str):
        raise ValueError(f"{field}: expected an experiment's id, its folder or its records file, got {source!r}")
    found = records.locate(folder / Path(source).expanduser())
    if found is not None:
        return str(found.resolve())
    try:
        return str(find_folder(source))
    except ValueError:
        raise ValueError(f"{field}: no records at {source!r}") from None
