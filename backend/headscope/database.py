"""A SQLite file shared by the threads and processes of one machine: a connection per thread, and atomic transactions."""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from .errors import DatabaseDamaged, HeadscopeError, StorageFull, StoreUnavailable

logger = logging.getLogger("headscope.store")
P = ParamSpec("P")
T = TypeVar("T")

# How long a transaction waits for another one (s).
BUSY_SECONDS = 10.0
DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
# I/O errors: a file that is too short is damaged, one that cannot be read is unavailable; any other error means a full disk.
SHORT, READ = sqlite3.SQLITE_IOERR_SHORT_READ, sqlite3.SQLITE_IOERR_READ
BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
AWAY = frozenset({sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH})
MISSING = ("no such table", "no such column")


class Database:
    """A SQLite file at `path`, created on first use.

    Every use may raise StorageFull, StoreUnavailable if the file cannot be opened or stays locked, or DatabaseDamaged.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._local = threading.local()

    @property
    def connection(self) -> sqlite3.Connection:
        """The connection of this thread; each statement is a transaction. A power cut may lose the last transactions, but never damages the file."""
        if not hasattr(self._local, "connection"):
            self._local.connection = _connected(self._path)
        connection: sqlite3.Connection = self._local.connection
        return connection

    def close(self) -> None:
        """Close this thread's connection; those of other threads close as they end."""
        if hasattr(self._local, "connection"):
            self._local.connection.close()
            del self._local.connection

    @contextmanager
    def change(self, *, durable: bool = False) -> Iterator[sqlite3.Connection]:
        """Run an exclusive write transaction. Only a `durable` one is guaranteed to survive a power cut."""
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


def recover(path: Path, create: Callable[[Database], None], loss: str) -> None:
    """Create the tables of the file at `path`; first quarantine a damaged file and log the loss.

    Only for the one process that uses the file. Raises StorageFull, or StoreUnavailable if the file cannot be opened.
    """
    try:
        _create(path, create)
    except (sqlite3.Error, DatabaseDamaged):
        quarantined = _quarantine(path)
        logger.error("%s is damaged and was renamed to %s. %s", path.name, quarantined.name, loss)
        _create(path, create)


def _create(path: Path, create: Callable[[Database], None]) -> None:
    if path.is_dir():
        raise damaged()
    database = Database(path)
    try:
        # 0.3 s for 100 MB, and jobs.db is trimmed.
        if database.connection.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
            raise damaged()
        create(database)
    finally:
        database.close()


def _quarantine(path: Path) -> Path:
    """Rename a file with its write-ahead log and index; return the new path."""
    ending = time.strftime(".damaged-%Y%m%dT%H%M%S", time.gmtime()) + f"-{time.time_ns() % 10**9:09d}"
    for name in ("", "-wal", "-shm"):
        with suppress(FileNotFoundError):
            path.with_name(path.name + name).rename(path.with_name(path.name + ending + name))
    return path.with_name(path.name + ending)


def _translated(method: Callable[P, T]) -> Callable[P, T]:
    """Translate the errors of a SQLite method into ours."""

    @wraps(method)
    def call(*args: P.args, **keywords: P.kwargs) -> T:
        try:
            return method(*args, **keywords)
        except sqlite3.Error as error:
            problem = _problem(error)
            if problem is None:
                raise
            raise problem from error

    return call


class _Cursor(sqlite3.Cursor):
    """A cursor that raises our errors."""

    execute = _translated(sqlite3.Cursor.execute)
    executemany = _translated(sqlite3.Cursor.executemany)
    executescript = _translated(sqlite3.Cursor.executescript)
    fetchone = _translated(sqlite3.Cursor.fetchone)
    fetchall = _translated(sqlite3.Cursor.fetchall)
    __next__ = _translated(sqlite3.Cursor.__next__)  # type: ignore[arg-type]


class _Connection(sqlite3.Connection):
    """A connection whose cursors raise our errors."""

    def execute(self, *arguments: Any) -> sqlite3.Cursor:
        """Execute a statement, as sqlite3.Connection.execute."""
        return _Cursor(self).execute(*arguments)

    def executemany(self, *arguments: Any) -> sqlite3.Cursor:
        """Execute a statement for each set of values, as sqlite3.Connection.executemany."""
        return _Cursor(self).executemany(*arguments)

    def executescript(self, *arguments: Any) -> sqlite3.Cursor:
        """Execute several statements, as sqlite3.Connection.executescript."""
        return _Cursor(self).executescript(*arguments)


@_translated
def _connected(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, factory=_Connection)
    _use_write_ahead_log(connection)
    connection.execute("PRAGMA synchronous=NORMAL")
    return connection


def _use_write_ahead_log(connection: sqlite3.Connection) -> None:
    """Switch to a write-ahead log. SQLite does not wait for another connection that is switching, so this function does."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            sqlite3.Connection.execute(connection, "PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return


def _problem(error: sqlite3.Error) -> HeadscopeError | None:
    """Return our error for a SQLite error; None for an error in a statement."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK)
    kind = code & 0xFF
    if kind in DAMAGED or code == SHORT or (kind == sqlite3.SQLITE_ERROR and str(error).startswith(MISSING)):
        return damaged()
    if kind in BUSY:
        return StoreUnavailable("A database file in HEADSCOPE_HOME is in use by another process. Try again later.")
    if kind in AWAY or code == READ:
        return StoreUnavailable(
            "A database file in HEADSCOPE_HOME cannot be opened. Let the user who runs the server read and write all files there."
        )
    if kind in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
        return StorageFull("The server cannot write to its disk. Free some disk space, then send the request again.")
    return None


def damaged() -> DatabaseDamaged:
    """Return the error of a damaged file."""
    return DatabaseDamaged(
        "A database file in HEADSCOPE_HOME is damaged. Restart the server: it quarantines the file and creates a new one."
    )
