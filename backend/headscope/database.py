"""A SQLite file that threads and processes of one machine share: a connection per thread, and transactions that are whole or not there."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# How long one waits for another's transaction (s).
BUSY_SECONDS = 10.0


class Database:
    """The file at `path`, made when it is first asked. Every use may raise sqlite3.OperationalError, as on a full disk."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._local = threading.local()

    @property
    def connection(self) -> sqlite3.Connection:
        """The one of this thread; each statement is a transaction of its own. What a power cut may take along is the last of them, never the file."""
        if not hasattr(self._local, "connection"):
            connection = sqlite3.connect(self._path, timeout=BUSY_SECONDS, isolation_level=None)
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=NORMAL")
            self._local.connection = connection
        made: sqlite3.Connection = self._local.connection
        return made

    def close(self) -> None:
        """Close this thread's connection; those of other threads close as they end."""
        if hasattr(self._local, "connection"):
            self._local.connection.close()
            del self._local.connection

    @contextmanager
    def change(self, *, durable: bool = False) -> Iterator[sqlite3.Connection]:
        """A transaction: all of it, or none, and nobody else writes meanwhile. Only what is `durable` must survive a power cut."""
        connection = self.connection
        if durable:
            connection.execute("PRAGMA synchronous=FULL")
        try:
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        finally:
            if durable:
                connection.execute("PRAGMA synchronous=NORMAL")
