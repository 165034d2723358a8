"""Accepted work and who does it. One record of jobs, one interface; here the embedded home: one child process."""

from .embedded import Embedded
from .job import Claimant, Histogram, Limits, Run, Work, WorkerState, settle
from .line import Line
from .record import Job, Record
from .watch import Watcher

__all__ = [
    "Claimant",
    "Embedded",
    "Histogram",
    "Job",
    "Limits",
    "Line",
    "Record",
    "Run",
    "Watcher",
    "Work",
    "WorkerState",
    "settle",
]
