"""The job queue: one database and two deployments, a child process or Celery workers on any number of machines."""

from .embedded import Embedded
from .job import LOCAL, ChunkState, Job, JobKind, Limits, Problem, Work, Worker
from .job_database import JobDatabase
from .progress import ProgressReporter
from .watch import Watcher
from .worker_process import Engine, WorkerProcess

__all__ = [
    "LOCAL",
    "ChunkState",
    "Embedded",
    "Engine",
    "Job",
    "JobDatabase",
    "JobKind",
    "Limits",
    "Problem",
    "ProgressReporter",
    "Watcher",
    "Work",
    "Worker",
    "WorkerProcess",
]
