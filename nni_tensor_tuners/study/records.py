"""Append-only files of JSON lines: what trials measured, and what a study asked and was told.

A line is written by one system call to a file opened for appending, so that lines of several processes do not mix and a crash
loses at most the line being written.
"""

import gzip
import json
import os
from pathlib import Path

# In an experiment's folder. Trials append what they measured to the first; the study keeps the second, to resume from.
RECORDS = "records.jsonl"
JOURNAL = "checkpoint/journal.jsonl"


def append(path, record):
    """Append one record."""
    line = json.dumps(record).encode() + b"\n"
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        if _unfinished(path):  # a crash cut a line short: close it, so that it does not swallow this one
            line = b"\n" + line
        os.write(file, line)
    finally:
        os.close(file)


def read(path):
    """All records of a file, gzipped or not, in order, none if there is no file; lines cut short by a crash are left out."""
    try:
        lines = read_text(path).splitlines()
    except FileNotFoundError:
        return []
    records = []
    for line in lines:
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict):
            records.append(record)
    return records


def read_text(path):
    """The text of a file, gzipped or not."""
    path = Path(path)
    content = path.read_bytes()
    return (gzip.decompress(content) if path.suffix == ".gz" else content).decode("utf-8")


def locate(path):
    """The records file that a path names, itself or by the experiment's folder; None if there is none."""
    path = Path(path).expanduser()
    return next((candidate for candidate in (path, path / RECORDS) if candidate.is_file()), None)


def succeeded(record):
    """Whether a record is of a trial that measured something."""
    return record.get("error_code") == 0 and isinstance(record.get("tflops"), (int, float)) and record["tflops"] > 0


def best(records):
    """The successful record of highest TFLOPS, or None."""
    return max(filter(succeeded, records), key=lambda record: record["tflops"], default=None)


def latest(records):
    """One record for each configuration: the last one, but no failure after a success."""
    by_config = {}
    for record in records:
        if "config" in record:
            key = json.dumps(record["config"], sort_keys=True)
            known = by_config.get(key)
            if known is None or succeeded(record) or not succeeded(known):
                by_config[key] = record
    return list(by_config.values())


def history(records, objective, known_of=lambda record: record.get("config")):
    """What a search can be told of records: pairs of what is known of each, its configuration or its features, and its fitness.

    Parameters
    ----------
    records
        Records; those that ``known_of`` has nothing of are left out.
    objective
        The `Objective` that fitness is by.
    known_of
        Record -> what is known of it, or None.
    """
    found = ((known_of(record), record) for record in records)
    return [(known, objective.of_record(record)) for known, record in found if known is not None]


def by_task(records):
    """Lists of records, one for each task and device that they are of."""
    groups = {}
    for record in records:
        place = json.dumps([record.get("workload"), record.get("device")], sort_keys=True)
        groups.setdefault(place, []).append(record)
    return list(groups.values())


def complete(path, record):
    """Append the record of a trial that did not write one itself: it died, it is not one of ours, or it ran on another machine.

    A failure is news only about a configuration without a record; a success also after a failure recorded too early.
    """
    known = [other for other in read(path) if other.get("config") == record["config"]]
    if not any(other.get("error_code") == 0 for other in known) and (not known or record["error_code"] == 0):
        append(path, record)


def _unfinished(path):
    with open(path, "rb") as file:
        if file.seek(0, os.SEEK_END) == 0:
            return False
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"
