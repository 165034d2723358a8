"""The index of a store: which entries exist, their sizes, and when each was last used. The backend has the entries themselves.

An index may differ from its backend after a process was killed between the two; tidying synchronises them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import TypeVar

import sqlalchemy as sa

from ..database import NOW, Database
from ..database.tables import results, stores
from ..errors import DatabaseUnavailable, StorageFull, StoreUnavailable

logger = logging.getLogger("headscope.store")
T = TypeVar("T")
# A shared store is tidied this often (s), and more often until its index is complete.
TIDY_SECONDS, INCOMPLETE_SECONDS = 3600.0, 600.0
# Uses are collected in memory for this long (s): reading an entry costs no write.
USES_SECONDS = 5.0
# The bytes of all entries are counted this often (s), and whenever the quota is used up if so many processes add as much as this one.
COUNT_SECONDS, WRITERS = 5.0, 8
# After a failure the database is left alone for this long (s).
PAUSE_SECONDS = 5.0
# Most entries that one statement deletes: databases limit the values of a statement.
DELETED = 1_000
AWAY = (DatabaseUnavailable, StorageFull, StoreUnavailable)


@dataclass(frozen=True, slots=True)
class Rules:
    """What a store asks about the jobs in its database: which entries are still `needed`, and which of some entries are `withheld` from readers."""

    needed: Callable[[sa.Connection], Collection[str]] = lambda _: ()
    withheld: Callable[[sa.Connection, Collection[str]], Collection[str]] = lambda *_: ()


NO_RULES = Rules()


def _least(entries: Iterable[tuple[str, int]], surplus: int) -> list[tuple[str, int]]:
    """Return the first of these entries (id, bytes) that together have `surplus` bytes; all if they have fewer."""
    found = list[tuple[str, int]]()
    for id_, size in entries if surplus > 0 else ():
        found.append((id_, size))
        surplus -= size
        if surplus <= 0:
            break
    return found


class Index:
    """The entries of one store, by its name in the database. Safe for threads.

    While the database is not available, methods do not raise: the backend is authoritative, and changes are pending.
    """

    def __init__(self, database: Database, store: str, rules: Rules = NO_RULES) -> None:
        self._database, self._store, self._rules = database, store, rules
        self._mine = results.c.store == store
        self._pending: set[str] = set()
        self._used: set[str] = set()
        self._last_usage = (0, 0)
        self._bytes, self._counted = 0, float("-inf")  # of all entries as estimated, and when they were counted
        self._written, self._retry_at = time.monotonic(), 0.0
        self._turn: float | None = None  # when this process began to tidy last

    def find(self, ids: Collection[str]) -> tuple[set[str], bool]:
        """Return which of these entries are indexed, and whether the backend has none of the others."""

        def find(database: Database) -> tuple[set[str], bool]:
            entries = sa.select(results.c.id, sa.true()).where(self._mine, results.c.id.in_(ids))
            complete = sa.select(stores.c.store, sa.false()).where(stores.c.store == self._store, stores.c.complete)
            with database.read() as connection:  # one statement, because others may complete the index between two
                rows = connection.execute(sa.union_all(entries, complete)).all()
            found = {id_ for id_, is_entry in rows if is_entry}
            return found, len(found) == len(set(ids)) or len(found) < len(rows)

        return self._try(find) or (set(), False)

    def withheld(self, ids: Collection[str]) -> set[str]:
        """Return which of these entries are withheld, as far as the database tells."""

        def withheld(database: Database) -> set[str]:
            with database.read() as connection:
                return set(self._rules.withheld(connection, ids))

        return (self._try(withheld) if ids else None) or set()

    def missing(self, connection: sa.Connection, ids: Collection[str]) -> set[str]:
        """Return which of these entries are not there. Until this transaction ends, none of the others is evicted."""
        self._take_turn(connection)
        found = connection.execute(sa.select(results.c.id).where(self._mine, results.c.id.in_(ids))).scalars()
        return set(ids) - set(found) - self._pending

    def touch(self, id_: str) -> None:
        """Mark an entry as used, if it is indexed."""
        self._used.add(id_)
        if time.monotonic() - self._written > USES_SECONDS:
            self.write_uses()

    def write_uses(self) -> None:
        """Write the uses that were collected."""
        if self._used:
            self._change(self._write_uses)

    def _write_uses(self, _: Database, connection: sa.Connection) -> None:
        used, self._used, self._written = self._used, set(), time.monotonic()
        if used:
            connection.execute(results.update().where(self._mine, results.c.id.in_(used)).values(used=NOW))

    def add(self, id_: str, size: int, quota: int, used: float | None = None) -> list[str]:
        """Add an entry, used now unless a time is given; remove and return the least used others until all fit the quota.

        Those that jobs need stay. If the rest does not suffice, the entry itself is removed and returned.
        """

        def add(database: Database, connection: sa.Connection) -> list[str]:
            self._write_uses(database, connection)
            at = NOW if used is None else used
            statement = database.insert(results).values(store=self._store, id=id_, bytes=size, used=at)
            new = statement.excluded
            later = sa.case((new.used > results.c.used, new.used), else_=results.c.used)
            changed = {"bytes": new.bytes, "used": later}
            connection.execute(statement.on_conflict_do_update(index_elements=["store", "id"], set_=changed))
            return self._evict(connection, id_, size, quota) if self._may_exceed(quota, size) else []

        victims = self._change(add)
        self._note(id_, changed=victims is not None)
        return victims or []

    def _may_exceed(self, quota: int, size: int) -> bool:
        """Return whether an entry of this size may exceed the quota. Counting every time would take longer with every entry."""
        self._bytes += WRITERS * size
        return self._bytes > quota or time.monotonic() - self._counted > COUNT_SECONDS

    def _evict(self, connection: sa.Connection, new: str, size: int, quota: int) -> list[str]:
        surplus, victims = self._count(connection)[1] - quota, list[str]()
        self._counted = time.monotonic()
        others = sa.select(results.c.id, results.c.bytes).where(self._mine, results.c.id != new)
        if surplus > 0:
            needed = self._rules.needed(connection)
            with connection.execute(others.order_by(results.c.used), execution_options={"yield_per": 100}) as rows:
                least = _least(((id_, bytes_) for id_, bytes_ in rows if id_ not in needed), surplus)
            freed = sum(bytes_ for _, bytes_ in least)
            if freed < surplus and new not in needed:  # without it fewer others have to go, or none
                least = [*_least(least, surplus - size), (new, size)]
                freed = sum(bytes_ for _, bytes_ in least)
            surplus -= freed
            victims = [id_ for id_, _ in least]
            for start in range(0, len(victims), DELETED):
                some = victims[start : start + DELETED]
                connection.execute(results.delete().where(self._mine, results.c.id.in_(some)))
        self._bytes = quota + surplus
        return victims

    def remove(self, id_: str) -> bool:
        """Remove an entry; return whether it was indexed."""
        mine = results.delete().where(self._mine, results.c.id == id_)
        removed = self._change(lambda _, connection: connection.execute(mine).rowcount)
        self._note(id_, changed=removed is not None)
        return bool(removed)

    def pending(self) -> list[str]:
        """Return the entries that could not be added or removed while the database was not available."""
        return list(self._pending)

    def usage(self) -> tuple[int, int]:
        """Return the number of entries and their bytes, as last known."""

        def usage(database: Database) -> tuple[int, int]:
            with database.read() as connection:
                return self._count(connection)

        self._last_usage = self._try(usage) or self._last_usage
        return self._last_usage

    def _count(self, connection: sa.Connection) -> tuple[int, int]:
        total = sa.func.coalesce(sa.func.sum(results.c.bytes), 0)
        count, size = connection.execute(sa.select(sa.func.count(), total).where(self._mine)).one()
        return int(count), int(size)

    def ids(self) -> set[str] | None:
        """Return all entries; None if the database is not available."""

        def ids(database: Database) -> set[str]:
            with database.read() as connection:
                return set(connection.execute(sa.select(results.c.id).where(self._mine)).scalars())

        return self._try(ids)

    def acquire_turn(self) -> bool:
        """Return whether it is this caller's turn to tidy: once per process in a file, and one process at a time in a cluster."""
        if self._database.embedded:
            first, self._turn = self._turn is None, 0.0
            return first

        def acquire(database: Database, connection: sa.Connection) -> bool:
            now = database.now(connection)
            new = {"store": self._store, "tidied": 0.0, "complete": False}
            connection.execute(database.insert(stores).values(new).on_conflict_do_nothing())
            since = sa.case((stores.c.complete, now - TIDY_SECONDS), else_=now - INCOMPLETE_SECONDS)
            due = stores.update().where(stores.c.store == self._store, stores.c.tidied < since).values(tidied=now)
            acquired = connection.execute(due).rowcount > 0
            self._turn = now if acquired else self._turn
            return acquired

        return bool(self._change(acquire))

    def mark_complete(self) -> None:
        """Note that every entry of the backend is indexed, unless another process tidies by now: the database may have been restored in between."""
        if not self._pending:
            turn = stores.update().where(stores.c.store == self._store, stores.c.tidied == self._turn)
            self._change(lambda _, connection: connection.execute(turn.values(complete=True)).rowcount)

    def _note(self, id_: str, *, changed: bool) -> None:
        (self._pending.discard if changed else self._pending.add)(id_)

    def _change(self, change: Callable[[Database, sa.Connection], T]) -> T | None:
        """Run a transaction, one at a time for each store. It may be lost in a crash: tidying indexes what is missing."""

        def run(database: Database) -> T:
            with database.change("report") as connection:
                self._take_turn(connection)
                return change(database, connection)

        return self._try(run)

    def _take_turn(self, connection: sa.Connection) -> None:
        self._database.take_turn(connection, f"headscope store {self._store}")

    def _try(self, action: Callable[[Database], T]) -> T | None:
        if time.monotonic() < self._retry_at:
            return None
        try:
            return action(self._database)
        except AWAY as error:
            self._retry_at = time.monotonic() + PAUSE_SECONDS
            logger.warning("the index of stored results is not available, pausing for %g s: %s", PAUSE_SECONDS, error)
            return None
