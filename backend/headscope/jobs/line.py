"""The line between the server and its child: progress and counts one way, cancellations the other.

The child never touches the record of jobs: one that is stopped or killed in the middle of a write would hold the record's lock against everybody.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

BROKEN = (EOFError, OSError)


class Line:
    """The child's end."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._run = 0
        self._cancelled: set[int] = set()

    def begin(self, run: int) -> None:
        """A run of a job starts; cancellations of earlier runs do not concern it."""
        self._run = run

    def progress(self, id_: str, fraction: float, stage: str, detail: str) -> bool:
        """Say how far a job is; False once it is no longer wanted."""
        self._connection.send(("progress", id_, self._run, fraction, stage, detail))
        while self._connection.poll():
            self._cancelled.add(self._connection.recv())
        return self._run not in self._cancelled

    def count(self, name: str) -> None:
        """Add one to a counter of the record."""
        self._connection.send(("count", name))


class ServerLine:
    """The server's end. What a dead child left half said is dropped."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def messages(self) -> Iterator[tuple[Any, ...]]:
        """What the child has said since the last time."""
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
