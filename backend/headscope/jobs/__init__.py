"""Accepted work and who does it. One record of jobs, one interface; here the embedded home: one child process."""

from .embedded import Embedded
from .line import Line
from .record import Job, Record
from .watch import Watcher

__all__ = ["Embedded", "Job", "Line", "Record", "Watcher"]
