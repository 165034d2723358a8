"""The line between whoever runs a job and the record: progress, counts and observations one way, cancellations the other.

In the embedded home it is a pipe between child and server: the child never touches the record, for one that is stopped or killed in the middle of a
write would hold the record's lock against everybody. In the cluster a worker writes to the record itself.
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
# After a failure the record is left alone for this long (s): a job need not wait for a broker that is away.
PAUSE_SECONDS = 2.0


class ProgressReporter(Protocol):
    """What a job says while it runs."""

    def progress(self, id_: str, fraction: float, stage: str, detail: str) -> bool:
        """Say how far a job is (fraction in 0..1); False once it is no longer wanted."""

    def count(self, name: str, number: int = 1) -> None:
        """Add to a counter of the record."""

    def observe(self, name: str, labels: Mapping[str, str], value: float) -> None:
        """Add an observation to a histogram of the record."""

    def running_elsewhere(self, study: str) -> frozenset[str]:
        """The chunks of a study that other workers are at."""


class PipeReporter:
    """The child's end of a pipe to the server."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._runs: dict[str, int] = {}
        self._cancelled: set[int] = set()

    def begin(self, runs: Mapping[str, int]) -> None:
        """These runs of jobs start, by id; cancellations of earlier runs do not concern them."""
        self._runs = dict(runs)

    def progress(self, id_: str, fraction: float, stage: str, detail: str) -> bool:
        """Say how far a job is; False once it is no longer wanted."""
        run = self._runs.get(id_, 0)
        self._connection.send(("progress", id_, run, fraction, stage, detail))
        while self._connection.poll():
            self._cancelled.add(self._connection.recv())
        return run not in self._cancelled

    def count(self, name: str, number: int = 1) -> None:
        """Add to a counter of the record."""
        self._connection.send(("count", name, number))

    def observe(self, name: str, labels: Mapping[str, str], value: float) -> None:
        """Add an observation to a histogram of the record."""
        self._connection.send(("observe", name, dict(labels), value))

    def running_elsewhere(self, study: str) -> frozenset[str]:
        """None: there is no other worker."""
        return frozenset()


class ServerReporter:
    """The server's end of the pipe. What a dead child left half said is dropped."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def messages(self) -> Iterator[tuple[Any, ...]]:
        """What the child has said since the last time: the name of a method of the record, and its arguments."""
        with contextlib.suppress(*BROKEN):
            while self._connection.poll():
                yield self._connection.recv()

    def cancel(self, run: int) -> None:
        """Tell the child that a run is no longer wanted."""
        with contextlib.suppress(*BROKEN):
            self._connection.send(run)

    def close(self) -> None:
        """Hang up."""
        self._connection.close()


class DatabaseReporter:
    """A worker's way to the record of the cluster. While the broker is away jobs go on; what they count is said later, and added once."""

    def __init__(self, database: JobDatabase) -> None:
        self._database = database
        self._runs: dict[str, int] = {}
        self._unsaid: deque[Callable[[], None]] = deque()
        self._name, self._sayings = secrets.token_hex(8), itertools.count(1)
        self._saying = threading.Lock()
        self._silent_until = 0.0

    def begin(self, runs: Mapping[str, int]) -> None:
        """These runs of jobs start, by id."""
        self._runs = dict(runs)

    def progress(self, id_: str, fraction: float, stage: str, detail: str) -> bool:
        """Say how far a job is; False once it is no longer wanted."""
        wanted = True
        if time.monotonic() >= self._silent_until:
            try:
                wanted = self._database.progress(id_, self._runs[id_], fraction, stage, detail)
            except BrokerUnavailable:
                self._silent_until = time.monotonic() + PAUSE_SECONDS
        return wanted

    def count(self, name: str, number: int = 1) -> None:
        """Add to a counter of the record."""
        self._say(lambda report: self._database.count(name, number, report=report))

    def observe(self, name: str, labels: Mapping[str, str], value: float) -> None:
        """Add an observation to a histogram of the record."""
        self._say(lambda report: self._database.observe(name, labels, value, report=report))

    def running_elsewhere(self, study: str) -> frozenset[str]:
        """The chunks of a study that other workers are at, as far as is known."""
        try:
            return frozenset(part.id for part in self._database.chunks(study) if part.status == "running")
        except BrokerUnavailable:
            return frozenset()

    def _say(self, add: Callable[[ReportId], None]) -> None:
        report = ReportId(self._name, next(self._sayings))
        self._unsaid.append(lambda: add(report))
        self.flush()

    def flush(self) -> None:
        """Say what could not be said before, if the broker is back."""
        with self._saying:
            while self._unsaid and time.monotonic() >= self._silent_until:
                try:
                    self._unsaid[0]()
                except BrokerUnavailable:
                    self._silent_until = time.monotonic() + PAUSE_SECONDS
                else:
                    self._unsaid.popleft()
