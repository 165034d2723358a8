"""The job queue: one database and two deployments, a child process or Celery workers on any number of machines."""

from .embedded import Embedded
from .engine import Engine, Problems
from .job import LOCAL, TERMINAL, ChunkState, Job, JobKind, Limits, Problem, Run, Work, Worker, WorkerState
from .job_database import JobDatabase
from .progress import ProgressReporter
from .watch import Watcher

__all__ = [
    "LOCAL",
    "TERMINAL",
    "ChunkState",
    "Embedded",
    "Engine",
    "Job",
    "JobDatabase",
    "JobKind",
    "Limits",
    "Problem",
    "Problems",
    "ProgressReporter",
    "Run",
    "Watcher",
    "Work",
    "Worker",
    "WorkerState",
]
