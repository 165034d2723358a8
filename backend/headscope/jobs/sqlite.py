"""The job database of the embedded deployment: a SQLite file."""

from __future__ import annotations

import json
import secrets
import sqlite3
import time
from collections.abc import Collection, Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

from ..database import Database
from . import scheduling
from .job import (
    GONE_SECONDS,
    KEEP_JOBS,
    KEEP_SECONDS,
    NO_LIMITS,
    TRIM_JOBS,
    ChunkState,
    Job,
    JobKind,
    Limits,
    Problem,
    Run,
    Status,
    Work,
    Worker,
    WorkerState,
    from_json,
    queue_full,
    to_json,
)
from .schema import NEXT, create

COLUMNS = ", ".join(field.name for field in fields(Job))
# An ended job that is accepted again is restarted.
ACCEPT = f"""
INSERT INTO jobs (id, payload, batch, priority, status, created, number, model, recipe, tokens, owner, request_id, kind, version)
VALUES (?, ?, ?, ?, 'queued', ?, ({NEXT}), ?, ?, ?, ?, ?, ?, ({NEXT}))
ON CONFLICT (id) DO UPDATE SET payload = excluded.payload, batch = excluded.batch, priority = excluded.priority, status = 'queued', created = excluded.created,
    number = excluded.number, model = excluded.model, recipe = excluded.recipe, tokens = excluded.tokens, owner = excluded.owner,
    request_id = excluded.request_id, version = excluded.version, fraction = 0, stage = 'queued', detail = '', attempts = 0, error = NULL,
    started = NULL, finished = NULL, run = 0, worker = ''
WHERE status NOT IN ('queued', 'running')
"""
# An owner with an empty queue joins in the round being served.
JOIN = """
INSERT INTO owners (owner, turn) VALUES (:owner, (SELECT turn FROM queue)) ON CONFLICT (owner) DO UPDATE SET turn = MAX(turn, excluded.turn)
WHERE NOT EXISTS (SELECT 1 FROM jobs WHERE status = 'queued' AND jobs.owner = :owner)
"""


class SqliteJobDatabase:
    """A JobDatabase in a file."""

    def __init__(self, path: Path) -> None:
        self._database = Database(path)
        create(self._database)

    @property
    def _connection(self) -> sqlite3.Connection:
        return self._database.connection

    def close(self) -> None:
        """Close this thread's connection; those of other threads close as they end."""
        self._database.close()

    def enqueue(
        self, work: Iterable[Work], *, batch: str | None = None, priority: int = 0, limits: Limits = NO_LIMITS
    ) -> None:
        accepted: set[str] = set()
        with self._database.change(durable=True) as connection:
            for item in work:
                connection.execute(JOIN, {"owner": item.owner})
                values = (item.id, item.payload, batch, priority, time.time())
                more = (item.model, item.recipe, item.tokens, item.owner, item.request_id, item.kind)
                if connection.execute(ACCEPT, (*values, *more)).rowcount > 0:
                    accepted.add(item.owner)
                if item.kind != "chunk":
                    _grant(connection, item.id, item.owner)
            if accepted:
                self._check(limits, accepted)

    def _check(self, limits: Limits, owners: Collection[str]) -> None:
        if limits.total is not None and self.waiting() > limits.total:
            raise queue_full(limits.total)
        if limits.per_owner is not None and any(self.waiting(owner) > limits.per_owner for owner in owners):
            raise queue_full(limits.per_owner, own=True)

    def grant(self, id_: str, owner: str) -> None:
        with self._database.change() as connection:
            _grant(connection, id_, owner)

    def get(self, id_: str) -> Job | None:
        return self.get_many((id_,)).get(id_)

    def get_many(self, ids: Collection[str]) -> dict[str, Job]:
        return {job.id: job for job in self._jobs("id IN (SELECT value FROM json_each(?))", json.dumps(list(ids)))}

    def _jobs(self, condition: str, *values: Any) -> list[Job]:
        rows = self._connection.execute(f"SELECT {COLUMNS} FROM jobs WHERE {condition}", values).fetchall()
        return [_job(row) for row in rows]

    def claim(self, worker: Worker) -> list[Job]:
        if not self.waiting():
            return []
        with self._database.change() as connection:
            waiting = self._head()
            if not waiting:
                return []
            now, head = time.time(), waiting[0]
            passed_id, passed_at = connection.execute("SELECT passed_id, passed_at FROM queue").fetchone()
            first = scheduling.prefer_warm(waiting, worker.warm, now - passed_at if passed_id == head.id else 0.0)[0]
            if first.id != head.id and passed_id != head.id:
                connection.execute("UPDATE queue SET passed_id = ?, passed_at = ?", (head.id, now))
            connection.execute("UPDATE queue SET turn = MAX(turn, ?)", (head.turn,))
            ids = [first.id, *self._companions(first, scheduling.count_companions(first, worker.most_tokens))]
            _record_heartbeat(connection, worker, now)
            return [self._take(connection, id_, worker.name, now) for id_ in ids]

    def _head(self) -> list[scheduling.Waiting]:
        owners = self._owners()
        depth = max(min(scheduling.WINDOW // max(len(owners), 1), scheduling.DEEPEST), 1)
        return scheduling.merge(self._queue(owner, turn, depth) for owner, turn in owners)

    def _owners(self) -> list[tuple[str, int]]:
        """Return the owners with queued jobs, and their turns."""
        return self._connection.execute(
            "SELECT owner, turn FROM owners WHERE EXISTS (SELECT 1 FROM jobs WHERE status = 'queued' AND jobs.owner = owners.owner)"
        ).fetchall()

    def _queue(self, owner: str, turn: int, depth: int) -> list[scheduling.Waiting]:
        rows = self._connection.execute(
            "SELECT id, priority, number, model, recipe <> '', tokens, attempts FROM jobs WHERE status = 'queued' AND owner = ? "
            "ORDER BY priority, number LIMIT ?",
            (owner, depth),
        )
        return [scheduling.Waiting(row[0], owner, turn + place, *row[1:]) for place, row in enumerate(rows)]

    def _companions(self, first: scheduling.Waiting, most: int) -> list[str]:
        rows = self._connection.execute(
            "SELECT jobs.id FROM jobs JOIN jobs AS me USING (recipe, tokens) WHERE me.id = ? AND jobs.status = 'queued' AND jobs.id <> me.id "
            "AND jobs.attempts = 0 ORDER BY jobs.priority, jobs.number LIMIT ?",
            (first.id, most),
        )
        return [row[0] for row in rows]

    def _take(self, connection: sqlite3.Connection, id_: str, worker: str, now: float) -> Job:
        row = connection.execute(
            f"UPDATE jobs SET status = 'running', stage = 'loading', attempts = attempts + 1, started = ?, worker = ?, run = ({NEXT}), "
            f"version = ({NEXT}) WHERE id = ? RETURNING {COLUMNS}",
            (now, worker, id_),
        ).fetchone()
        job = _job(row)
        connection.execute("UPDATE owners SET turn = turn + 1 WHERE owner = ?", (job.owner,))
        connection.execute(
            "INSERT INTO runs (run, id, worker, heartbeat) VALUES (?, ?, ?, ?)", (job.run, id_, worker, now)
        )
        return job

    def heartbeat(self, worker: Worker, runs: Collection[int]) -> None:
        with self._database.change() as connection:
            now = time.time()
            _record_heartbeat(connection, worker, now)
            connection.execute(
                "UPDATE runs SET heartbeat = ? WHERE worker = ? AND run IN (SELECT value FROM json_each(?))",
                (now, worker.name, json.dumps(list(runs))),
            )

    def deregister(self, name: str) -> None:
        with self._database.change() as connection:
            connection.execute("DELETE FROM workers WHERE name = ?", (name,))
            connection.execute("DELETE FROM runs WHERE worker = ? AND cancelled IS NOT NULL", (name,))

    def progress(self, id_: str, run: int, fraction: float, stage: str, detail: str) -> bool:
        return _set(self._connection, id_, run, fraction=fraction, stage=stage, detail=detail)

    def finish(self, id_: str, run: int, status: Status, error: Problem | None = None) -> bool:
        with self._database.change() as connection:
            connection.execute("DELETE FROM runs WHERE run = ?", (run,))
            ended = {"status": status, "stage": status, "finished": time.time()}
            written = {"error": json.dumps(error)} if error else {}
            whole = {"fraction": 1.0} if status == "done" else {}
            changed = _set(connection, id_, run, **ended, **written, **whole)
            if changed:
                _remove_chunks(connection, id_)
            return changed

    def requeue(self, id_: str, run: int, detail: str, *, counted: bool = True) -> bool:
        with self._database.change() as connection:
            connection.execute("DELETE FROM runs WHERE run = ?", (run,))
            row = connection.execute("SELECT owner, attempts FROM jobs WHERE id = ? AND run = ?", (id_, run)).fetchone()
            if row is None:
                return False
            connection.execute(JOIN, {"owner": row[0]})
            again = {"status": "queued", "stage": "queued", "fraction": 0.0, "detail": detail}
            return _set(connection, id_, run, attempts=row[1] if counted else row[1] - 1, **again)

    def cancel(self, id_: str, owner: str | None = None) -> bool:
        with self._database.change() as connection:
            under_way = "SELECT run FROM jobs WHERE id = ? AND status IN ('queued', 'running')"
            row = connection.execute(under_way, (id_,)).fetchone()
            if row is None or (owner is not None and not self.may_read(id_, owner)):
                return False
            others = "SELECT owner FROM grants WHERE id = ? AND owner <> ? ORDER BY owner LIMIT 1"
            heir = connection.execute(others, (id_, owner)).fetchone()
            if owner is not None and heir is not None:
                connection.execute("DELETE FROM grants WHERE id = ? AND owner = ?", (id_, owner))
                _transfer(connection, id_, owner, heir[0])
                return True
            now = time.time()
            connection.execute("UPDATE runs SET cancelled = ? WHERE run = ?", (now, row[0]))
            connection.execute(
                f"UPDATE jobs SET status = 'cancelled', stage = 'cancelled', finished = ?, version = ({NEXT}) WHERE id = ?",
                (now, id_),
            )
            _remove_chunks(connection, id_)
            return True

    def forget(self, id_: str, owner: str | None = None) -> bool:
        with self._database.change() as connection:
            job = connection.execute("SELECT status FROM jobs WHERE id = ?", (id_,)).fetchone()
            if job is not None and job[0] in ("queued", "running"):
                return False
            mine = "DELETE FROM grants WHERE id = ? AND owner = COALESCE(?, owner)"
            gone = connection.execute(mine, (id_, owner)).rowcount
            if owner is not None and not gone:
                return False
            heir = connection.execute("SELECT owner FROM grants WHERE id = ? ORDER BY owner LIMIT 1", (id_,)).fetchone()
            if heir is not None:
                _transfer(connection, id_, owner, heir[0])
                return False
            gone += connection.execute("DELETE FROM jobs WHERE id = ?", (id_,)).rowcount
            return gone > 0

    def expired(self, seconds: float | None = None, name: str | None = None) -> list[Job]:
        before = float("inf") if seconds is None else time.time() - seconds
        return self._jobs(
            "status = 'running' AND run IN (SELECT run FROM runs WHERE heartbeat < ? AND worker = COALESCE(?, worker))",
            before,
            name,
        )

    def unreleased(self, seconds: float) -> list[Run]:
        now = time.time()
        rows = self._connection.execute(
            "SELECT id, run, worker FROM runs JOIN workers ON worker = name WHERE cancelled < ? AND seen > ?",
            (now - seconds, now - GONE_SECONDS),
        )
        return [Run(*row) for row in rows]

    def waiting(self, owner: str | None = None) -> int:
        return self._number(
            "SELECT COUNT(*) FROM jobs WHERE status = 'queued'" + (" AND owner = ?" if owner else ""),
            *((owner,) if owner else ()),
        )

    def _number(self, query: str, *values: Any) -> int:
        return int(self._connection.execute(query, values).fetchone()[0])

    def oldest(self) -> float | None:
        found: float | None = self._connection.execute(
            "SELECT MIN(created) FROM jobs WHERE status = 'queued'"
        ).fetchone()[0]
        return found

    def position(self, job: Job) -> int | None:
        mine = "SELECT owner, turn, priority, number FROM jobs JOIN owners USING (owner) WHERE id = ? AND status = 'queued'"
        row = self._connection.execute(mine, (job.id,)).fetchone()
        if row is None:
            return None
        owner, turn, *key = row
        earlier = "SELECT COUNT(*) FROM jobs WHERE status = 'queued' AND owner = ? AND (priority, number) < (?, ?)"
        rank = self._number(earlier, owner, *key)
        others = [other for other in self._owners() if other[0] != owner]
        return rank + sum(self._before(other, turn + rank - theirs, key) for other, theirs in others)

    def _before(self, owner: str, rounds: int, key: list[int]) -> int:
        """Return how many of an owner's jobs are taken within `rounds`, and in the next one before a job with that key."""
        jobs = self._connection.execute(
            "SELECT priority, number FROM jobs WHERE status = 'queued' AND owner = ? ORDER BY priority, number LIMIT ?",
            (owner, max(rounds + 1, 0)),
        ).fetchall()
        return sum(place < rounds or list(job) < key for place, job in enumerate(jobs))

    def newest_version(self) -> int:
        return self._number("SELECT version FROM queue")

    def changed_since(self, version: int) -> tuple[int, list[str] | None]:
        rows = self._connection.execute("SELECT version, id FROM jobs WHERE version > ?", (version,)).fetchall()
        return max((row[0] for row in rows), default=version), [row[1] for row in rows]

    def statuses(self) -> dict[str, int]:
        return dict(self._connection.execute("SELECT status, COUNT(*) FROM jobs GROUP BY status").fetchall())

    def page(self, limit: int, before: float, owner: str | None = None, kind: JobKind = "analysis") -> list[Job]:
        granted = "AND id IN (SELECT id FROM grants WHERE owner = ?) " if owner is not None else ""
        values = (kind, before, owner, limit) if owner is not None else (kind, before, limit)
        return self._jobs(f"kind = ? AND created < ? {granted}ORDER BY created DESC LIMIT ?", *values)

    def chunks(self, id_: str) -> list[ChunkState]:
        rows = self._connection.execute(
            f"SELECT {', '.join(ChunkState._fields)} FROM jobs WHERE batch = ? AND kind = 'chunk'", (id_,)
        )
        return [ChunkState(*row) for row in rows]

    def workers(self) -> list[WorkerState]:
        rows = self._connection.execute(
            "SELECT state, seen, (SELECT json_group_array(id) FROM runs WHERE worker = name) FROM workers WHERE seen > ? ORDER BY name",
            (time.time() - GONE_SECONDS,),
        )
        return [WorkerState(from_json(row[0]), row[1], tuple(json.loads(row[2]))) for row in rows]

    def may_read(self, id_: str, owner: str) -> bool:
        granted = "SELECT EXISTS (SELECT 1 FROM grants WHERE id = ? AND owner = ?)"
        return bool(self._number(granted, id_, owner))

    def share(self, id_: str, owner: str) -> str:
        with self._database.change() as connection:
            connection.execute(
                "INSERT INTO shares (share_key, id, owner) VALUES (?, ?, ?) ON CONFLICT (id, owner) DO NOTHING",
                (secrets.token_hex(16), id_, owner),
            )
            found = connection.execute("SELECT share_key FROM shares WHERE id = ? AND owner = ?", (id_, owner))
            return str(found.fetchone()[0])

    def unshare(self, id_: str, owner: str) -> bool:
        gone = self._connection.execute("DELETE FROM shares WHERE id = ? AND owner = ?", (id_, owner))
        return gone.rowcount > 0

    def shared(self, key: str) -> str | None:
        row = self._connection.execute("SELECT id FROM shares WHERE share_key = ?", (key,)).fetchone()
        return str(row[0]) if row else None

    def trim(self, older_than: float = KEEP_SECONDS, most: int = KEEP_JOBS) -> int:
        with self._database.change() as connection:
            jobs = connection.execute(
                "DELETE FROM jobs WHERE id IN (SELECT id FROM (SELECT id, finished, ROW_NUMBER() OVER (ORDER BY finished DESC) AS place "
                "FROM jobs WHERE status IN ('done', 'failed', 'cancelled')) WHERE finished < ? OR place > ? ORDER BY finished LIMIT ?)",
                (time.time() - older_than, most, TRIM_JOBS),
            )
            connection.execute(
                "DELETE FROM grants WHERE rowid IN (SELECT rowid FROM (SELECT rowid, ROW_NUMBER() OVER (PARTITION BY owner ORDER BY requested DESC) AS place "
                "FROM grants) WHERE place > ? LIMIT ?)",
                (most, TRIM_JOBS),
            )
            connection.execute("DELETE FROM runs WHERE cancelled < ?", (time.time() - older_than,))
            connection.execute("DELETE FROM workers WHERE seen < ?", (time.time() - older_than,))
            return jobs.rowcount

    def now(self) -> float:
        return time.time()


def _set(connection: sqlite3.Connection, id_: str, run: int, **values: Any) -> bool:
    """Change a job if that run is its current one."""
    changes = "".join(f"{name} = ?, " for name in values)
    changed = connection.execute(
        f"UPDATE jobs SET {changes}version = ({NEXT}) WHERE id = ? AND run = ? AND status = 'running'",
        (*values.values(), id_, run),
    )
    return changed.rowcount > 0


def _remove_chunks(connection: sqlite3.Connection, id_: str) -> None:
    """Cancel and remove the chunks of a study that has ended."""
    chunks = "FROM jobs WHERE batch = ? AND kind = 'chunk'"
    connection.execute(f"UPDATE runs SET cancelled = ? WHERE run IN (SELECT run {chunks})", (time.time(), id_))
    connection.execute(f"DELETE {chunks}", (id_,))


def _grant(connection: sqlite3.Connection, id_: str, owner: str) -> None:
    connection.execute(
        "INSERT INTO grants (owner, id, requested) VALUES (?, ?, ?) ON CONFLICT (owner, id) DO UPDATE SET requested = excluded.requested",
        (owner, id_, time.time()),
    )


def _transfer(connection: sqlite3.Connection, id_: str, owner: str | None, heir: str) -> None:
    """Transfer a job whose owner withdrew to another owner with a grant, at the other owner's turn."""
    connection.execute(JOIN, {"owner": heir})
    connection.execute("UPDATE jobs SET owner = ? WHERE id = ? AND owner = ?", (heir, id_, owner))


def _record_heartbeat(connection: sqlite3.Connection, worker: Worker, now: float) -> None:
    connection.execute(
        "INSERT INTO workers VALUES (?, ?, ?) ON CONFLICT (name) DO UPDATE SET state = excluded.state, seen = excluded.seen",
        (worker.name, to_json(worker), now),
    )


def _job(row: tuple[Any, ...]) -> Job:
    values = dict(zip(COLUMNS.split(", "), row, strict=True))
    values["error"] = json.loads(values["error"]) if values["error"] else None
    return Job(**values)
