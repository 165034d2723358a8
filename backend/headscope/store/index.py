"""The index of a store: which entries exist, their sizes, and when each was last used. The backend has the entries themselves.

An index may differ from its backend after a process was killed between the two; tidying synchronises them.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import sqlalchemy as sa

from ..database import Database
from ..errors import HeadscopeError
from .optional_redis import OptionalRedis

# A shared store is tidied this often (s).
TIDY_SECONDS = 3600.0
# The timeout of the Redis index (s).
TIMEOUT_SECONDS = 1.0
# A use this soon (s) after another one is not noted: the write would cost more than the read.
SAME_USE_SECONDS = 1.0


class Index(Protocol):
    """Entries with their sizes and last uses. If the index is not available its methods do not raise: the backend is authoritative."""

    def has(self, id_: str) -> bool | None:
        """Return whether the entry exists; None if only the backend can tell."""

    def touch(self, ids: Collection[str]) -> None:
        """Mark those of these entries as used now that are indexed."""

    def add(self, id_: str, size: int, quota: int, used: float | None = None) -> list[str]:
        """Add an entry, used now unless a time is given; remove and return the least used others until all fit the quota."""

    def pending(self) -> list[str]:
        """Return the entries that could not be added or removed while the index was not available."""

    def remove(self, id_: str) -> bool:
        """Remove an entry; return whether it was indexed."""

    def usage(self) -> tuple[int, int]:
        """Return the number of entries and their bytes, as last known."""

    def ids(self) -> set[str] | None:
        """Return all entries; None if the index is not available."""

    def acquire_turn(self) -> bool:
        """Return whether it is this caller's turn to tidy."""

    def mark_complete(self) -> None:
        """Note that every entry of the backend is indexed."""


entries = sa.Table(
    "results",
    sa.MetaData(),
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("bytes", sa.Integer, nullable=False),
    sa.Column("used", sa.Double, nullable=False),
    sa.Index("results_used", "used"),
)


def create(path: Path) -> None:
    """Create the table of a SqliteIndex. A table with other columns is replaced; tidying fills it from the backend."""
    database = Database(path)
    try:
        with database.change() as connection:
            inspector = sa.inspect(connection)
            if inspector.has_table(entries.name):
                if {column["name"] for column in inspector.get_columns(entries.name)} == set(entries.columns.keys()):
                    return
                entries.drop(connection)
            entries.create(connection)
    finally:
        database.close()


class SqliteIndex:
    """An index in a SQLite file, for the processes of one machine."""

    def __init__(self, path: Path) -> None:
        create(path)
        self._database, self._tidied = Database(path), False

    def has(self, id_: str) -> bool | None:
        with self._database.read() as connection:
            found = connection.execute(sa.select(entries.c.id).where(entries.c.id == id_)).first()
        return True if found else None  # asking the local backend costs nothing

    def touch(self, ids: Collection[str]) -> None:
        now = time.time()
        old = entries.c.id.in_(ids) & (entries.c.used < now - SAME_USE_SECONDS)
        with self._database.read() as connection:
            due = connection.execute(sa.select(entries.c.id).where(old).limit(1)).first()
        if due:
            # A full disk must not prevent reads.
            with suppress(HeadscopeError), self._database.change() as connection:
                connection.execute(entries.update().where(old).values(used=now))

    def add(self, id_: str, size: int, quota: int, used: float | None = None) -> list[str]:
        statement = self._database.insert(entries).values(
            id=id_, bytes=size, used=time.time() if used is None else used
        )
        later = sa.func.max(entries.c.used, statement.excluded.used)
        with self._database.change() as connection:
            connection.execute(
                statement.on_conflict_do_update(
                    index_elements=["id"], set_={"bytes": statement.excluded.bytes, "used": later}
                )
            )
            total, victims = _usage(connection)[1], []
            others = sa.select(entries.c.id, entries.c.bytes).where(entries.c.id != id_).order_by(entries.c.used)
            for victim, bytes_ in connection.execute(others).all() if total > quota else ():
                if total <= quota:
                    break
                victims.append(victim)
                total -= bytes_
            if victims:
                connection.execute(entries.delete().where(entries.c.id.in_(victims)))
        return victims

    def pending(self) -> list[str]:
        return []

    def remove(self, id_: str) -> bool:
        with self._database.change() as connection:
            return connection.execute(entries.delete().where(entries.c.id == id_)).rowcount > 0

    def usage(self) -> tuple[int, int]:
        with self._database.read() as connection:
            return _usage(connection)

    def ids(self) -> set[str]:
        with self._database.read() as connection:
            return set(connection.execute(sa.select(entries.c.id)).scalars())

    def acquire_turn(self) -> bool:
        tidied, self._tidied = self._tidied, True
        return not tidied

    def mark_complete(self) -> None:
        """Do nothing: this index is always available."""


def _usage(connection: sa.Connection) -> tuple[int, int]:
    count, size = connection.execute(
        sa.select(sa.func.count(), sa.func.coalesce(sa.func.sum(entries.c.bytes), 0))
    ).one()
    return int(count), int(size)


# The keys: entries by time of last use, their bytes, and the sum of those. Each script is atomic; the clock is that of Redis.
NOW = "local clock = redis.call('TIME') local now = clock[1] + clock[2] / 1e6 "
REMOVE_ENTRY = """
local function remove_entry(id)
    local size = redis.call('HGET', KEYS[2], id)
    if not size then return 0 end
    redis.call('ZREM', KEYS[1], id)
    redis.call('HDEL', KEYS[2], id)
    redis.call('DECRBY', KEYS[3], size)
    return 1
end
"""
ADD = f"""{NOW}{REMOVE_ENTRY}
local id, size, quota, used = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]) or now
redis.call('ZADD', KEYS[1], 'GT', string.format('%.6f', used), id)
local total, victims = redis.call('INCRBY', KEYS[3], size - (redis.call('HGET', KEYS[2], id) or 0)), {{}}
redis.call('HSET', KEYS[2], id, size)
while total > quota do
    local oldest = redis.call('ZRANGE', KEYS[1], 0, 1)
    local victim = oldest[1] ~= id and oldest[1] or oldest[2]
    if not victim then break end
    remove_entry(victim)
    table.insert(victims, victim)
    total = tonumber(redis.call('GET', KEYS[3]))
end
return victims
"""
REMOVE = f"{REMOVE_ENTRY} return remove_entry(ARGV[1])"
TOUCH = f"""{NOW}
for _, id in ipairs(ARGV) do
    local used = redis.call('ZSCORE', KEYS[1], id)
    if used and now - used > {SAME_USE_SECONDS} then redis.call('ZADD', KEYS[1], string.format('%.6f', now), id) end
end
"""

# Takes effect only if Redis has not restarted empty since the turn began.
COMPLETE = "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('SET', KEYS[2], '1') end"


class RedisIndex:
    """An index in Redis, for any number of machines. Changes that fail while Redis is away are pending."""

    def __init__(self, url: str, prefix: str) -> None:
        self._redis = OptionalRedis(url, TIMEOUT_SECONDS)
        self._keys = [f"{prefix}:{part}" for part in ("used", "bytes", "total")]
        self._complete, self._turn = f"{prefix}:complete", f"{prefix}:turn"
        self._pending: set[str] = set()
        self._usage = (0, 0)
        self._me = uuid.uuid4().hex

    def has(self, id_: str) -> bool | None:
        def look_up(redis: Any) -> list[Any]:
            pipeline = redis.pipeline(transaction=False).hexists(self._keys[1], id_).exists(self._complete)
            return list(pipeline.execute())

        found = self._redis.call(look_up)
        return bool(found[0]) if found is not None and any(found) else None

    def touch(self, ids: Collection[str]) -> None:
        self._run(TOUCH, *ids)

    def add(self, id_: str, size: int, quota: int, used: float | None = None) -> list[str]:
        found = self._run(ADD, id_, size, quota, "" if used is None else used)
        if found is None:
            self._pending.add(id_)
            return []
        self._pending.discard(id_)
        return [victim.decode() for victim in found]

    def pending(self) -> list[str]:
        return list(self._pending)

    def remove(self, id_: str) -> bool:
        found = self._run(REMOVE, id_)
        (self._pending.add if found is None else self._pending.discard)(id_)
        return bool(found)

    def usage(self) -> tuple[int, int]:
        found: Any = self._redis.call(lambda redis: (redis.zcard(self._keys[0]), redis.get(self._keys[2])))
        if found is not None:
            self._usage = (int(found[0]), int(found[1] or 0))
        return self._usage

    def ids(self) -> set[str] | None:
        found: Any = self._redis.call(lambda redis: redis.hkeys(self._keys[1]))
        return None if found is None else {id_.decode() for id_ in found}

    def acquire_turn(self) -> bool:
        def acquire(redis: Any) -> bool:
            seconds = TIDY_SECONDS if redis.exists(self._complete) else TIDY_SECONDS / 6
            return bool(redis.set(self._turn, self._me, nx=True, ex=int(seconds)))

        return bool(self._redis.call(acquire))

    def mark_complete(self) -> None:
        if not self._pending:
            self._redis.call(lambda redis: redis.eval(COMPLETE, 2, self._turn, self._complete, self._me))

    def _run(self, script: str, *arguments: Any) -> Any:
        return self._redis.call(lambda redis: redis.eval(script, len(self._keys), *self._keys, *arguments))
