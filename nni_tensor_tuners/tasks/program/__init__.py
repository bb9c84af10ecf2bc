"""Any tensor program."""

from . import database
from .definition import DLIGHT, Program, ProgramTask
from .load import parse
from .workloads import PROGRAMS

OPERATORS = {"program": Program}
WORKLOADS = {}

__all__ = ["DLIGHT", "OPERATORS", "PROGRAMS", "WORKLOADS", "Program", "ProgramTask", "database", "parse"]
