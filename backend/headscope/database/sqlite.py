"""SQLite: a file with a write-ahead log, shared by the threads and processes of one machine."""

from __future__ import annotations

import logging
import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from ..errors import DatabaseDamaged, HeadscopeError, StorageFull, StoreUnavailable

logger = logging.getLogger("headscope.store")

# How long a transaction waits for another one (s): longer than it takes to kill a process that stands still in the middle of one.
BUSY_SECONDS = 20.0
DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
# I/O errors: a file that is too short is damaged, one that cannot be read is unavailable; any other error means a full disk.
SHORT, READ = sqlite3.SQLITE_IOERR_SHORT_READ, sqlite3.SQLITE_IOERR_READ
BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
AWAY = frozenset({sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH})
MISSING = ("no such table", "no such column")


def engine(path: Path) -> sa.Engine:
    """Return an engine whose connections commit every statement, except in a transaction: one with the option `change`, its kind."""
    with suppress(OSError):  # a file that cannot be opened is reported when it is used
        path.touch(mode=0o600)  # SQLite gives its other files the same permissions
    made = sa.create_engine(
        sa.URL.create("sqlite", database=str(path)), connect_args={"timeout": BUSY_SECONDS}, max_overflow=-1
    )
    sa.event.listen(made, "connect", _configure)
    sa.event.listen(made, "begin", _begin)
    return made


def _configure(connection: sqlite3.Connection, _: object) -> None:
    connection.isolation_level = None  # transactions begin in _begin only
    _use_write_ahead_log(connection)
    # A power cut may lose the last transactions, but never damages the file.
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.create_function("now_seconds", 0, time.time)


def _begin(connection: sa.Connection) -> None:
    if connection.get_execution_options().get("change"):
        connection.exec_driver_sql("BEGIN IMMEDIATE")


def flush(path: Path) -> None:
    """Have every transaction that is committed survive a power cut, as `synchronous=FULL` does at the end of each. Raises StorageFull.

    Transactions are in the write-ahead log, or were moved from it to the file at `path`, which SQLite flushes itself.
    """
    try:
        log = os.open(f"{path}-wal", os.O_RDONLY)
    except FileNotFoundError:  # the last connection has moved all of it
        return
    try:
        os.fsync(log)
    except OSError as error:
        raise disk_full() from error
    finally:
        os.close(log)


def _use_write_ahead_log(connection: sqlite3.Connection) -> None:
    """Switch to a write-ahead log. SQLite does not wait for another connection that is switching, so this function does."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return


def problem(error: sa.exc.DBAPIError) -> HeadscopeError | None:
    """Return our error for a SQLite error; None for an error in a statement."""
    code: Any = getattr(error.orig, "sqlite_errorcode", sqlite3.SQLITE_OK)
    kind = code & 0xFF
    if kind in DAMAGED or code == SHORT or (kind == sqlite3.SQLITE_ERROR and str(error.orig).startswith(MISSING)):
        return damaged()
    if kind in BUSY:
        return StoreUnavailable("A database file in HEADSCOPE_HOME is in use by another process. Try again later.")
    if kind in AWAY or code == READ:
        return StoreUnavailable(
            "A database file in HEADSCOPE_HOME cannot be opened. Let the user who runs the server read and write all files there."
        )
    if kind in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
        return disk_full()
    return None


def disk_full() -> StorageFull:
    """Return the error of a disk that takes no more."""
    return StorageFull("The server cannot write to its disk. Free some disk space, then send the request again.")


def damaged() -> DatabaseDamaged:
    """Return the error of a damaged file."""
    return DatabaseDamaged(
        "A database file in HEADSCOPE_HOME is damaged. Restart the server: it quarantines the file and creates a new one."
    )


def recover(path: Path, create: Callable[[Path], None], loss: str) -> None:
    """Create the tables of the file at `path`; first quarantine a damaged file and log the loss.

    Only for the one process that uses the file. Raises StorageFull, or StoreUnavailable if the file cannot be opened.
    """
    try:
        _check(path)
        create(path)
    except (sqlite3.Error, sa.exc.DBAPIError, DatabaseDamaged):
        quarantined = _quarantine(path)
        logger.error("%s is damaged and was renamed to %s. %s", path.name, quarantined.name, loss)
        create(path)


def _check(path: Path) -> None:
    """Read the whole file: 0.3 s for 100 MB, and the queue is trimmed. Raises DatabaseDamaged or StoreUnavailable."""
    if path.is_dir():
        raise damaged()
    opened = engine(path)
    try:
        with opened.connect() as connection:
            if connection.exec_driver_sql("PRAGMA quick_check(1)").scalar() != "ok":
                raise damaged()
    except sa.exc.DBAPIError as error:
        raise problem(error) or error from error
    finally:
        opened.dispose()


def _quarantine(path: Path) -> Path:
    """Rename a file with its write-ahead log and index; return the new path."""
    ending = time.strftime(".damaged-%Y%m%dT%H%M%S", time.gmtime()) + f"-{time.time_ns() % 10**9:09d}"
    for name in ("", "-wal", "-shm"):
        with suppress(FileNotFoundError):
            path.with_name(path.name + name).rename(path.with_name(path.name + ending + name))
    return path.with_name(path.name + ending)
