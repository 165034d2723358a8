"""Accepted work and who does it. One record of jobs, one interface; here the embedded home: one child process."""

from .embedded import Embedded
from .job import LOCAL, TERMINAL, Claimant, Histogram, Job, Limits, Record, Run, Work, WorkerState, settle
from .line import Line
from .redis import RedisRecord
from .sqlite import SqliteRecord
from .tally import BUCKETS
from .watch import Watcher

__all__ = [
    "BUCKETS",
    "LOCAL",
    "TERMINAL",
    "Claimant",
    "Embedded",
    "Histogram",
    "Job",
    "Limits",
    "Line",
    "Record",
    "RedisRecord",
    "Run",
    "SqliteRecord",
    "Watcher",
    "Work",
    "WorkerState",
    "settle",
]
