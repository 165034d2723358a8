"""Connections and transactions, and the errors of both kinds of database as ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql as pg
from sqlalchemy.dialects import sqlite as lite
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from ..core.lazy import LazyModule
from . import sqlite

if TYPE_CHECKING:
    from . import postgresql
else:  # an embedded server does not need psycopg
    postgresql = LazyModule(f"{__package__}.postgresql")


class Now(FunctionElement[float]):
    """The time in s since 1970 on the clock of the database, the only one that times are compared with."""

    type, inherit_cache = sa.Double(), True


@compiles(Now, "sqlite")
def _sqlite_now(*_: Any, **__: Any) -> str:
    return "now_seconds()"


@compiles(Now, "postgresql")
def _postgresql_now(*_: Any, **__: Any) -> str:
    return "CAST(extract(epoch FROM clock_timestamp()) AS double precision)"


NOW = Now()
# A request that waits for an unreachable database fails within two seconds; a worker keeps no request waiting.
REQUEST_SECONDS, WORKER_SECONDS = 1.5, 5.0
# Most connections of a server, and of a worker, which has few threads.
SERVER_CONNECTIONS, WORKER_CONNECTIONS = 20, 5


class Database:
    """A database: the path of a SQLite file, or the URL of a PostgreSQL. Safe for threads, and for processes forked later. A process opens one.

    A `patient` process, which runs jobs or a command, waits longer for a silent PostgreSQL, with fewer connections.

    Every use may raise DatabaseUnavailable (PostgreSQL), or StoreUnavailable or DatabaseDamaged (SQLite), and StorageFull.
    """

    def __init__(self, where: str | Path, *, patient: bool = False) -> None:
        self._file = where if isinstance(where, Path) else None
        self.embedded = self._file is not None
        self._problem: Callable[[sa.exc.DBAPIError], Exception | None]
        if isinstance(where, Path):
            self._engine, self._problem = sqlite.engine(where), sqlite.problem
            self._reader = self._engine
        else:
            limits = (WORKER_SECONDS, WORKER_CONNECTIONS) if patient else (REQUEST_SECONDS, SERVER_CONNECTIONS)
            self._engine, self._problem = postgresql.engine(where, *limits), postgresql.problem
            self._reader = self._engine.execution_options(isolation_level="AUTOCOMMIT")
        kinds = ("report", "change", "promise")
        self._engines = {kind: self._engine.execution_options(change=kind) for kind in kinds}

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """Provide a connection on which every statement is a transaction of its own."""
        with self._translated(), self._reader.connect() as connection:
            yield connection

    @contextmanager
    def change(
        self, kind: Literal["report", "change", "promise"] = "change", committed: Callable[[], None] = lambda: None
    ) -> Iterator[sa.Connection]:
        """Run a write transaction, in SQLite an exclusive one.

        A `change` survives the crash of any process, PostgreSQL's too, and a `promise` a power cut as well. A `report` may be lost: another one follows.
        `committed` is called once others can see it: with SQLite this is before a promise is on the disk, for which the end of the context waits.
        """
        with self._translated():
            with self._engines[kind].begin() as connection:
                yield connection
            committed()
            if kind == "promise" and self._file is not None:
                sqlite.flush(self._file)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sa.exc.DBAPIError as error:
            problem = self._problem(error)
            if problem is None:
                raise
            raise problem from error
        except sa.exc.TimeoutError as error:  # all connections are in use
            raise postgresql.unavailable() from error

    def insert(self, table: sa.Table) -> Any:
        """Return an insert statement with the upserts of the dialect, which are written alike."""
        return lite.insert(table) if self.embedded else pg.insert(table)

    def now(self, connection: sa.Connection) -> float:
        """Return what NOW is."""
        return float(connection.execute(sa.select(NOW)).scalar_one())

    def take_turn(self, connection: sa.Connection, name: str) -> None:
        """Wait until no other transaction has the lock of that name. A write transaction of SQLite has every lock."""
        if not self.embedded:
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(sa.func.hashtext(name))))

    def close(self) -> None:
        """Close all connections that are not in use."""
        self._engine.dispose()
