"""The job queue: one job database interface and two deployments, a child process or Celery workers on any number of machines."""

from .embedded import Embedded
from .engine import Engine, Problems
from .job import (
    LOCAL,
    TERMINAL,
    ChunkState,
    Job,
    JobDatabase,
    JobKind,
    Limits,
    Problem,
    Run,
    Work,
    Worker,
    WorkerState,
    running,
    settle,
)
from .progress import ProgressReporter
from .redis import TIMEOUT_SECONDS, RedisJobDatabase
from .sqlite import SqliteJobDatabase
from .watch import Watcher

__all__ = [
    "LOCAL",
    "TERMINAL",
    "TIMEOUT_SECONDS",
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
    "RedisJobDatabase",
    "Run",
    "SqliteJobDatabase",
    "Watcher",
    "Work",
    "Worker",
    "WorkerState",
    "running",
    "settle",
]
