"""The index of a store: which entries exist, their sizes, and when each was last used. The backend has the entries themselves.

An index may differ from its backend after a process was killed between the two; tidying synchronises them.
"""

from __future__ import annotations

import json
import sqlite3
import time
import uuid
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

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


def create(database: Database) -> None:
    """Create the table of a SqliteIndex. A table with other columns is replaced; tidying fills it from the backend."""
    connection = database.connection
    columns = [row[1] for row in connection.execute("PRAGMA table_info(results)")]
    if columns and columns != ["id", "bytes", "used"]:
        connection.execute("DROP TABLE results")
    connection.executescript(
        "CREATE TABLE IF NOT EXISTS results (id TEXT PRIMARY KEY, bytes INTEGER NOT NULL, used REAL NOT NULL);"
        "CREATE INDEX IF NOT EXISTS results_used ON results (used);"
    )


class SqliteIndex:
    """An index in a SQLite file, for the processes of one machine."""

    def __init__(self, path: Path) -> None:
        self._database, self._tidied = Database(path), False
        create(self._database)

    @property
    def _connection(self) -> sqlite3.Connection:
        return self._database.connection

    def has(self, id_: str) -> bool | None:
        row = self._connection.execute("SELECT 1 FROM results WHERE id = ?", (id_,)).fetchone()
        return True if row else None  # asking the local backend costs nothing

    def touch(self, ids: Collection[str]) -> None:
        now, named = time.time(), json.dumps(list(ids))
        rows = self._connection.execute(
            "SELECT id FROM results WHERE id IN (SELECT value FROM json_each(?)) AND used < ?",
            (named, now - SAME_USE_SECONDS),
        )
        if due := [(now, id_) for (id_,) in rows.fetchall()]:
            # A full disk must not prevent reads.
            with suppress(HeadscopeError), self._database.change() as connection:
                connection.executemany("UPDATE results SET used = ? WHERE id = ?", due)

    def add(self, id_: str, size: int, quota: int, used: float | None = None) -> list[str]:
        with self._database.change() as connection:
            connection.execute(
                "INSERT INTO results VALUES (?, ?, ?) "
                "ON CONFLICT (id) DO UPDATE SET bytes = excluded.bytes, used = MAX(used, excluded.used)",
                (id_, size, time.time() if used is None else used),
            )
            total, victims = self.usage()[1], []
            others = connection.execute("SELECT id, bytes FROM results WHERE id != ? ORDER BY used", (id_,))
            for victim, bytes_ in others.fetchall() if total > quota else ():
                if total <= quota:
                    break
                victims.append(victim)
                total -= bytes_
            connection.executemany("DELETE FROM results WHERE id = ?", [(victim,) for victim in victims])
        return victims

    def pending(self) -> list[str]:
        return []

    def remove(self, id_: str) -> bool:
        return self._connection.execute("DELETE FROM results WHERE id = ?", (id_,)).rowcount > 0

    def usage(self) -> tuple[int, int]:
        count, size = self._connection.execute("SELECT COUNT(*), COALESCE(SUM(bytes), 0) FROM results").fetchone()
        return int(count), int(size)

    def ids(self) -> set[str]:
        return {row[0] for row in self._connection.execute("SELECT id FROM results")}

    def acquire_turn(self) -> bool:
        tidied, self._tidied = self._tidied, True
        return not tidied

    def mark_complete(self) -> None:
        """Do nothing: this index is always available."""


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
