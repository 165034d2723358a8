"""The durable record of jobs: what was asked, how far it is, how it ended. Every change is compare-and-set on the status."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Status = Literal["queued", "running", "done", "failed", "cancelled"]
TERMINAL: frozenset[str] = frozenset({"done", "failed", "cancelled"})

TABLES = """
CREATE TABLE IF NOT EXISTS jobs (
    id TEXT PRIMARY KEY, payload TEXT NOT NULL, batch TEXT, priority INTEGER NOT NULL, status TEXT NOT NULL,
    fraction REAL NOT NULL DEFAULT 0, stage TEXT NOT NULL DEFAULT 'queued', detail TEXT NOT NULL DEFAULT '',
    attempts INTEGER NOT NULL DEFAULT 0, error TEXT, created REAL NOT NULL, started REAL, finished REAL, version INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS jobs_queue ON jobs (status, priority, created);
CREATE INDEX IF NOT EXISTS jobs_version ON jobs (version);
CREATE TABLE IF NOT EXISTS counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL);
CREATE TRIGGER IF NOT EXISTS jobs_forgotten AFTER DELETE ON jobs BEGIN
    INSERT INTO counters VALUES ('forgotten_version', OLD.version) ON CONFLICT (name) DO UPDATE SET value = MAX(value, excluded.value);
END;
"""
COLUMNS = "id, payload, batch, status, fraction, stage, detail, attempts, error, created, started, finished, version"
# Versions count changes over all jobs: they order events and tell a reader what is new. No version is used twice, not even that of a forgotten job.
NEWEST = (
    "MAX((SELECT COALESCE(MAX(version), 0) FROM jobs), "
    "COALESCE((SELECT value FROM counters WHERE name = 'forgotten_version'), 0))"
)
NEXT = f"version = {NEWEST} + 1"


@dataclass(frozen=True, slots=True)
class Job:
    """One piece of accepted work. `version` grows with every change."""

    id: str
    payload: str
    batch: str | None
    status: Status
    fraction: float
    stage: str
    detail: str
    attempts: int
    error: dict[str, Any] | None
    created: float
    started: float | None
    finished: float | None
    version: int

    @property
    def terminal(self) -> bool:
        """Whether nothing more will happen to it."""
        return self.status in TERMINAL


class Record:
    """SQLite table of jobs, safe for several threads and processes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._local = threading.local()
        self._connection.executescript(TABLES)

    @property
    def _connection(self) -> sqlite3.Connection:
        if not hasattr(self._local, "connection"):
            connection = sqlite3.connect(self._path, timeout=10, isolation_level=None)
            connection.execute("PRAGMA journal_mode=WAL")
            self._local.connection = connection
        made: sqlite3.Connection = self._local.connection
        return made

    def enqueue(self, work: Iterable[tuple[str, str]], *, batch: str | None = None, priority: int = 0) -> None:
        """Accept (id, payload) pairs, durably. What is queued or running already stays; what has ended starts anew."""
        connection = self._connection
        # An accepted job survives a power cut; progress need not.
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("BEGIN IMMEDIATE")
        try:
            for id_, payload in work:
                connection.execute(
                    f"INSERT INTO jobs (id, payload, batch, priority, status, created, version) "
                    f"VALUES (?, ?, ?, ?, 'queued', ?, {NEWEST} + 1) "
                    f"ON CONFLICT (id) DO UPDATE SET status = 'queued', fraction = 0, stage = 'queued', detail = '', attempts = 0, "
                    f"error = NULL, created = excluded.created, started = NULL, finished = NULL, batch = excluded.batch, "
                    f"priority = excluded.priority, {NEXT} WHERE status IN ('done', 'failed', 'cancelled')",
                    (id_, payload, batch, priority, time.time()),
                )
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        finally:
            connection.execute("PRAGMA synchronous=NORMAL")

    def get(self, id_: str) -> Job | None:
        """The job of that id."""
        row = self._connection.execute(f"SELECT {COLUMNS} FROM jobs WHERE id = ?", (id_,)).fetchone()
        return _job(row) if row else None

    def claim(self) -> Job | None:
        """Take the next queued job: single requests before batches, then in order of arrival."""
        row = self._connection.execute(
            f"UPDATE jobs SET status = 'running', stage = 'loading', attempts = attempts + 1, started = ?, {NEXT} "
            f"WHERE id = (SELECT id FROM jobs WHERE status = 'queued' ORDER BY priority, created LIMIT 1) AND status = 'queued' "
            f"RETURNING {COLUMNS}",
            (time.time(),),
        ).fetchone()
        return _job(row) if row else None

    def progress(self, id_: str, fraction: float, stage: str, detail: str) -> bool:
        """Note how far a running job is; False if it is not running any more."""
        changed = self._connection.execute(
            f"UPDATE jobs SET fraction = ?, stage = ?, detail = ?, {NEXT} WHERE id = ? AND status = 'running'",
            (fraction, stage, detail, id_),
        )
        return changed.rowcount > 0

    def finish(self, id_: str, status: Status, error: dict[str, Any] | None = None) -> bool:
        """End a running job; False if it had ended already."""
        changed = self._connection.execute(
            f"UPDATE jobs SET status = ?, error = ?, finished = ?, stage = ?, fraction = CASE WHEN ? = 'done' THEN 1.0 ELSE fraction END, {NEXT} "
            f"WHERE id = ? AND status = 'running'",
            (status, json.dumps(error) if error else None, time.time(), status, status, id_),
        )
        return changed.rowcount > 0

    def requeue(self, id_: str, detail: str) -> bool:
        """Put a running job back in the queue after its worker was lost; its attempts stay counted."""
        changed = self._connection.execute(
            f"UPDATE jobs SET status = 'queued', fraction = 0, stage = 'queued', detail = ?, {NEXT} WHERE id = ? AND status = 'running'",
            (detail, id_),
        )
        return changed.rowcount > 0

    def cancel(self, id_: str) -> bool:
        """Cancel a queued or running job; False if it had ended already."""
        changed = self._connection.execute(
            f"UPDATE jobs SET status = 'cancelled', stage = 'cancelled', finished = ?, {NEXT} "
            f"WHERE id = ? AND status IN ('queued', 'running')",
            (time.time(), id_),
        )
        return changed.rowcount > 0

    def forget(self, id_: str) -> bool:
        """Remove an ended job; False if there was none."""
        changed = self._connection.execute(
            "DELETE FROM jobs WHERE id = ? AND status IN ('done', 'failed', 'cancelled')", (id_,)
        )
        return changed.rowcount > 0

    def recover(self) -> int:
        """After a restart: what was running is queued again. The stop was not the job's fault, so the attempt does not count."""
        changed = self._connection.execute(
            f"UPDATE jobs SET status = 'queued', fraction = 0, stage = 'queued', attempts = MAX(attempts - 1, 0), {NEXT} "
            f"WHERE status = 'running'"
        )
        return changed.rowcount

    def waiting(self) -> int:
        """Number of queued jobs."""
        return int(self._connection.execute("SELECT COUNT(*) FROM jobs WHERE status = 'queued'").fetchone()[0])

    def place(self, job: Job) -> int | None:
        """How many jobs are taken before this queued one."""
        if job.status != "queued":
            return None
        row = self._connection.execute(
            "SELECT COUNT(*) FROM jobs AS other, jobs AS me WHERE me.id = ? AND other.status = 'queued' "
            "AND (other.priority, other.created) < (me.priority, me.created)",
            (job.id,),
        ).fetchone()
        return int(row[0])

    def newest(self) -> int:
        """The newest version."""
        return int(self._connection.execute(f"SELECT {NEWEST}").fetchone()[0])

    def changed_since(self, version: int) -> tuple[int, list[str]]:
        """The newest version, and the ids that changed after `version`."""
        rows = self._connection.execute("SELECT version, id FROM jobs WHERE version > ?", (version,)).fetchall()
        return max((row[0] for row in rows), default=version), [row[1] for row in rows]

    def statuses(self) -> dict[str, int]:
        """Number of jobs by status."""
        return dict(self._connection.execute("SELECT status, COUNT(*) FROM jobs GROUP BY status").fetchall())

    def page(self, limit: int, before: float) -> list[Job]:
        """The newest jobs created before a time, newest first."""
        rows = self._connection.execute(
            f"SELECT {COLUMNS} FROM jobs WHERE created < ? ORDER BY created DESC LIMIT ?",
            (before, limit),
        ).fetchall()
        return [_job(row) for row in rows]

    def count(self, name: str) -> None:
        """Add one to a counter that outlives the process which counts."""
        self._connection.execute(
            "INSERT INTO counters VALUES (?, 1) ON CONFLICT (name) DO UPDATE SET value = value + 1", (name,)
        )

    def counters(self) -> dict[str, int]:
        """All counters."""
        return dict(self._connection.execute("SELECT name, value FROM counters").fetchall())


def _job(row: tuple[Any, ...]) -> Job:
    values = dict(zip(COLUMNS.split(", "), row, strict=True))
    values["error"] = json.loads(values["error"]) if values["error"] else None
    return Job(**values)
