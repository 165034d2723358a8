"""The reporter of an engine to the job database: progress one way, cancellations the other."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from ..errors import HeadscopeError
from .job import Job
from .job_database import JobDatabase

T = TypeVar("T")
U = TypeVar("U")

# After a failure, reports are paused for this long (s): a job must not wait for a database that is away.
PAUSE_SECONDS = 2.0


class ProgressReporter:
    """Reports of running jobs. Jobs continue while the database is away; the reports of that time are lost."""

    def __init__(self, database: JobDatabase) -> None:
        self._database, self._paused_until = database, 0.0
        self._elsewhere = frozenset[str]()

    def progress(self, job: Job, fraction: float, stage: str, detail: str) -> bool:
        """Report the progress of a running job (fraction in 0..1); return False once it is cancelled."""
        report = partial(self._database.progress, job.id, job.run, fraction, stage, detail)
        return self._send(report, unsent=True)

    def running_elsewhere(self, study: str) -> frozenset[str]:
        """Return the chunks of a study that other workers are running, as last known."""
        chunks = self._send(lambda: self._database.chunks(study), unsent=None)
        if chunks is not None:
            self._elsewhere = frozenset(chunk.id for chunk in chunks if chunk.status == "running")
        return self._elsewhere

    def _send(self, report: Callable[[], T], *, unsent: U) -> T | U:
        """Return the answer to a report, or `unsent` while the database is away."""
        if time.monotonic() >= self._paused_until:
            try:
                return report()
            except HeadscopeError:
                self._paused_until = time.monotonic() + PAUSE_SECONDS
        return unsent
