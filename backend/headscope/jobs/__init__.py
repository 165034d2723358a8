"""Accepted work and who does it. One record of jobs, two homes: one child process, or Celery workers on any number of machines."""

from .embedded import Embedded
from .engine import Engine, Problems
from .job import (
    LOCAL,
    TERMINAL,
    Claimant,
    Histogram,
    Job,
    JobKind,
    Limits,
    Part,
    Problem,
    Record,
    Run,
    Work,
    WorkerState,
    running,
    settle,
)
from .line import Line
from .redis import ANSWER_SECONDS, RedisRecord
from .sqlite import SqliteRecord
from .tally import BUCKETS
from .watch import Watcher

__all__ = [
    "ANSWER_SECONDS",
    "BUCKETS",
    "LOCAL",
    "TERMINAL",
    "Claimant",
    "Embedded",
    "Engine",
    "Histogram",
    "Job",
    "JobKind",
    "Limits",
    "Line",
    "Part",
    "Problem",
    "Problems",
    "Record",
    "RedisRecord",
    "Run",
    "SqliteRecord",
    "Watcher",
    "Work",
    "WorkerState",
    "running",
    "settle",
]
