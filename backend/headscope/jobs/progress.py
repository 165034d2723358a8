"""Reporters between an engine and the job database: progress one way, cancellations the other.

In the embedded deployment this is a pipe between child and server. The child never writes to the database: if it were stopped or killed during a write,
it would keep the lock. In a cluster, workers write to the database directly.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, Protocol, TypeVar

from ..errors import DatabaseUnavailable
from .job import ChunkState
from .job_database import JobDatabase

T = TypeVar("T")

BROKEN = (EOFError, OSError)
# After a failure, reports are paused for this long (s): a job must not wait for a database that is away.
PAUSE_SECONDS = 2.0


class ProgressReporter(Protocol):
    """Reports of running jobs."""

    def progress(self, id_: str, fraction: float, stage: str, detail: str) -> bool:
        """Report the progress of a job (fraction in 0..1); return False once it is cancelled."""

    def running_elsewhere(self, study: str) -> frozenset[str]:
        """Return the chunks of a study that other workers are running."""


class PipeReporter:
    """The child's end of a pipe to the server."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._runs: dict[str, int] = {}
        self._cancelled: set[int] = set()

    def begin(self, runs: Mapping[str, int]) -> None:
        """Start runs of jobs, given by id. Cancellations of earlier runs do not apply to them."""
        self._runs = dict(runs)

    def progress(self, id_: str, fraction: float, stage: str, detail: str) -> bool:
        run = self._runs.get(id_, 0)
        self._connection.send((id_, run, fraction, stage, detail))
        while self._connection.poll():
            self._cancelled.add(self._connection.recv())
        return run not in self._cancelled

    def running_elsewhere(self, study: str) -> frozenset[str]:
        """Return nothing: there is no other worker."""
        return frozenset()


class ServerReporter:
    """The server's end of the pipe. An incomplete message of a dead child is dropped."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def messages(self) -> Iterator[tuple[Any, ...]]:
        """Yield the child's reports since the last call: the arguments of `progress` of the job database."""
        with contextlib.suppress(*BROKEN):
            while self._connection.poll():
                yield self._connection.recv()

    def cancel(self, run: int) -> None:
        """Tell the child that a run is cancelled."""
        with contextlib.suppress(*BROKEN):
            self._connection.send(run)

    def close(self) -> None:
        """Close the pipe."""
        self._connection.close()


class DatabaseReporter:
    """A worker's reporter to the job database of a cluster. Jobs continue while it is away; the reports of that time are lost."""

    def __init__(self, database: JobDatabase) -> None:
        self._database = database
        self._runs: dict[str, int] = {}
        self._paused_until = 0.0

    def begin(self, runs: Mapping[str, int]) -> None:
        """Start runs of jobs, given by id. They have just been claimed, so the database is available again."""
        self._runs, self._paused_until = dict(runs), 0.0

    def progress(self, id_: str, fraction: float, stage: str, detail: str) -> bool:
        report = partial(self._database.progress, id_, self._runs[id_], fraction, stage, detail)
        return self._send(report, unsent=True)

    def running_elsewhere(self, study: str) -> frozenset[str]:
        """Return the chunks of a study that other workers are running, as last known."""
        nothing: list[ChunkState] = []
        chunks = self._send(lambda: self._database.chunks(study), unsent=nothing)
        return frozenset(chunk.id for chunk in chunks if chunk.status == "running")

    def _send(self, report: Callable[[], T], *, unsent: T) -> T:
        """Return the answer to a report, or `unsent` while the database is away."""
        if time.monotonic() >= self._paused_until:
            try:
                return report()
            except DatabaseUnavailable:
                self._paused_until = time.monotonic() + PAUSE_SECONDS
        return unsent
