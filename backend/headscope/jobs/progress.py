"""Reporters between an engine and the job database: progress, counts and observations one way, cancellations the other.

In the embedded deployment this is a pipe between child and server. The child never writes to the database: if it were stopped or killed during a write,
it would keep the lock. In a cluster, workers write to the database directly.
"""

from __future__ import annotations

import contextlib
import itertools
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from multiprocessing.connection import Connection
from typing import Any, Protocol

from ..errors import BrokerUnavailable
from .job import JobDatabase, ReportId

BROKEN = (EOFError, OSError)
# After a failure, reports are paused for this long (s): a job must not wait for a broker that is away.
PAUSE_SECONDS = 2.0


class ProgressReporter(Protocol):
    """Reports of running jobs."""

    def progress(self, id_: str, fraction: float, stage: str, detail: str) -> bool:
        """Report the progress of a job (fraction in 0..1); return False once it is cancelled."""

    def count(self, name: str, number: int = 1) -> None:
        """Add to a counter of the job database."""

    def observe(self, name: str, labels: Mapping[str, str], value: float) -> None:
        """Add an observation to a histogram of the job database."""

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
        self._connection.send(("progress", id_, run, fraction, stage, detail))
        while self._connection.poll():
            self._cancelled.add(self._connection.recv())
        return run not in self._cancelled

    def count(self, name: str, number: int = 1) -> None:
        self._connection.send(("count", name, number))

    def observe(self, name: str, labels: Mapping[str, str], value: float) -> None:
        self._connection.send(("observe", name, dict(labels), value))

    def running_elsewhere(self, study: str) -> frozenset[str]:
        """Return nothing: there is no other worker."""
        return frozenset()


class ServerReporter:
    """The server's end of the pipe. An incomplete message of a dead child is dropped."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def messages(self) -> Iterator[tuple[Any, ...]]:
        """Yield the child's messages since the last call: the name of a method of the job database, and its arguments."""
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
    """A worker's reporter to the job database of a cluster. Jobs continue while the broker is away; counts are sent later, exactly once."""

    def __init__(self, database: JobDatabase) -> None:
        self._database = database
        self._runs: dict[str, int] = {}
        self._pending: deque[Callable[[], None]] = deque()
        self._client_id, self._numbers = secrets.token_hex(8), itertools.count(1)
        self._flushing = threading.Lock()
        self._paused_until = 0.0

    def begin(self, runs: Mapping[str, int]) -> None:
        """Start runs of jobs, given by id. They have just been claimed, so the broker is available again."""
        self._runs, self._paused_until = dict(runs), 0.0

    def progress(self, id_: str, fraction: float, stage: str, detail: str) -> bool:
        wanted = True
        if time.monotonic() >= self._paused_until:
            try:
                wanted = self._database.progress(id_, self._runs[id_], fraction, stage, detail)
            except BrokerUnavailable:
                self._paused_until = time.monotonic() + PAUSE_SECONDS
        return wanted

    def count(self, name: str, number: int = 1) -> None:
        self._send(lambda report: self._database.count(name, number, report=report))

    def observe(self, name: str, labels: Mapping[str, str], value: float) -> None:
        self._send(lambda report: self._database.observe(name, labels, value, report=report))

    def running_elsewhere(self, study: str) -> frozenset[str]:
        """Return the chunks of a study that other workers are running, as last known."""
        try:
            return frozenset(chunk.id for chunk in self._database.chunks(study) if chunk.status == "running")
        except BrokerUnavailable:
            return frozenset()

    def _send(self, add: Callable[[ReportId], None]) -> None:
        report = ReportId(self._client_id, next(self._numbers))
        self._pending.append(lambda: add(report))
        self.flush()

    def flush(self) -> None:
        """Send pending reports if the broker is back."""
        with self._flushing:
            while self._pending and time.monotonic() >= self._paused_until:
                try:
                    self._pending[0]()
                except BrokerUnavailable:
                    self._paused_until = time.monotonic() + PAUSE_SECONDS
                else:
                    self._pending.popleft()
