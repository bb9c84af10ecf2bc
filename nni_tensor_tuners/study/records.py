"""Append-only files of JSON lines: what trials measured, and what the tuner proposed and was told.

A line is written by one system call to a file opened for appending, so that lines of several processes do not mix and a crash
loses at most the line being written.
"""

import gzip
import json
import os
from pathlib import Path

# In an experiment's folder. Trials append what they measured to the first; the tuner keeps the second, to resume from.
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


def _unfinished(path):
    with open(path, "rb") as file:
        if file.seek(0, os.SEEK_END) == 0:
            return False
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"
