"""PostgreSQL through psycopg: a pool of connections that do not wait for a silent server."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any, TypeVar, cast

import psycopg
import sqlalchemy as sa
from psycopg.waiting import Ready, Wait

from ..errors import DatabaseUnavailable, HeadscopeError, StorageFull

T = TypeVar("T")
# Connections of one process that stay open.
POOL = 5
# After a timeout, connecting fails at once for this long (s): otherwise every request would wait for its own timeout.
PAUSE_SECONDS = 0.5
# For the server: it ends a transaction whose client stands still, and so releases its locks.
OPTIONS = "-c idle_in_transaction_session_timeout=10s"
# Share of `seconds` after which PostgreSQL itself ends the wait for a lock. Without an answer, it would count as silent, and new connections would be refused for PAUSE_SECONDS.
LOCK_SHARE = 0.8
# For the network: a machine that is gone is noticed, in s (the last one in ms).
KEEPALIVE: dict[str, Any] = {
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
DISK_FULL = "53100"
# Severities of errors that end the session, or the server: a log that cannot be written, for instance.
ENDING = ("FATAL", "PANIC")
# Errors that another attempt may not meet: connection, resources, operator intervention, read-only, idle, rolled back, locked, tables not created yet, password.
AWAY = ("08", "53", "57", "25006", "25P03", "40", "55P03", "42P01", "28", "3D")


def engine(url: str, seconds: float, connections: int) -> sa.Engine:
    """Return an engine with that many connections at most, whose statements fail once the server has been silent for `seconds`."""
    server = _Address(url, seconds)
    made = sa.create_engine(
        "postgresql+psycopg://",
        creator=server.connect,
        pool_size=POOL,
        max_overflow=max(connections - POOL, 0),
        pool_timeout=seconds,
        pool_pre_ping=True,  # the server may have been restarted
    )
    sa.event.listen(made, "begin", _begin)
    return made


def _begin(connection: sa.Connection) -> None:
    if connection.get_execution_options().get("change") == "report":  # which does not wait for the disk
        connection.exec_driver_sql("SET LOCAL synchronous_commit = off")


class _Address:
    """Where connections are opened, and whether the server has just been silent."""

    def __init__(self, url: str, seconds: float) -> None:
        self._url, self.seconds, self.paused_until = url, seconds, 0.0
        self._options = f"{OPTIONS} -c lock_timeout={round(1000 * LOCK_SHARE * seconds)}"

    def connect(self) -> psycopg.Connection[Any]:
        """Open a connection. Raises psycopg.OperationalError."""
        if time.monotonic() < self.paused_until:
            raise psycopg.OperationalError("the server was silent a moment ago")
        try:
            connection = _ImpatientConnection.connect(
                self._url, connect_timeout=max(2, round(self.seconds)), options=self._options, **KEEPALIVE
            )
        except psycopg.errors.ConnectionTimeout:
            self.pause()
            raise
        connection.server = self
        return connection

    def pause(self) -> None:
        """Note that the server is silent."""
        self.paused_until = time.monotonic() + PAUSE_SECONDS


class _ImpatientConnection(psycopg.Connection[Any]):
    """A connection that gives up a statement when the server sends nothing for long; libpq would wait for ever."""

    server: _Address | None = None

    def wait(self, gen: Generator[Wait, Ready | int, T], *arguments: Any, **options: Any) -> T:
        return super().wait(self._limited(gen, self.server) if self.server else gen, *arguments, **options)

    def _limited(self, gen: Generator[Wait, Ready | int, T], server: _Address) -> Generator[Wait, Ready | int, T]:
        """Run a generator of psycopg, which is resumed with Ready.NONE while nothing arrives; after too long, close the connection."""
        since = time.monotonic()
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if ready:
                    since = time.monotonic()
                elif time.monotonic() - since > server.seconds:
                    server.pause()
                    self.pgconn.finish()
                    raise psycopg.OperationalError("the server is silent")
                wanted = gen.send(ready)
        except StopIteration as end:
            return cast("T", end.value)


def problem(error: sa.exc.DBAPIError) -> HeadscopeError | None:
    """Return our error for an error of PostgreSQL; None for an error in a statement."""
    state: str | None = getattr(error.orig, "sqlstate", None)
    if state == DISK_FULL:
        return StorageFull("The disk of the database is full. Free some space there, then send the request again.")
    lost = state is None and isinstance(error, sa.exc.OperationalError | sa.exc.InterfaceError)
    ended = isinstance(error.orig, psycopg.Error) and error.orig.diag.severity_nonlocalized in ENDING
    if lost or ended or (state or "").startswith(AWAY):
        return unavailable()
    return None


def unavailable() -> DatabaseUnavailable:
    """Return the error of a database that cannot be reached, or accepts no changes now."""
    return DatabaseUnavailable("The server cannot reach its database. Try again in a few seconds.")
