"""What can be read of jobs and workers."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import fields, replace
from typing import Any

import sqlalchemy as sa

from ..database import NOW
from ..database.tables import grants, jobs, owners, workers
from .grants import Grants
from .job import WORKERS, ChunkState, Job, JobKind, Worker

# A worker without a heartbeat for this long (s) is no longer listed.
GONE_SECONDS = 60.0
# Most tasks of one owner that are at the broker and have not started.
AHEAD = 4
# The order of an owner's queue: single requests before batches, then order of arrival.
ORDER = (jobs.c.priority, jobs.c.created, jobs.c.id)
COLUMNS = [jobs.c[field.name] for field in fields(Job)]
JOBS = sa.select(*COLUMNS)
CHUNK_STATES = sa.select(*(jobs.c[name] for name in ChunkState._fields)).where(
    jobs.c.batch == sa.bindparam("study"), jobs.c.kind == "chunk"
)
NAMES = ("id", "task", "tokens", "owner", "kind", "batch", "model", "priority")
FIRST = sa.select(*(jobs.c[name] for name in NAMES)).order_by(*ORDER).limit(1)
QUEUED = jobs.c.status == "queued"
RUNNING = jobs.c.status == "running"


class JobQueries(Grants):
    """Queries of the jobs and workers of a database."""

    def get(self, id_: str) -> Job | None:
        """Return a job, None if there is none."""
        return self.get_many((id_,)).get(id_)

    def get_many(self, ids: Collection[str]) -> dict[str, Job]:
        """Return those of these jobs that exist, by id."""
        return {job.id: job for job in self._find(jobs.c.id.in_(ids))}

    def running(self, ids: Collection[str]) -> dict[str, int]:
        """Return the current runs of those of these jobs that are running."""
        return self._pairs(sa.select(jobs.c.id, jobs.c.run).where(jobs.c.id.in_(ids), RUNNING))

    def versions(self, ids: Collection[str]) -> dict[str, int]:
        """Return the versions of those of these jobs that exist."""
        return self._pairs(sa.select(jobs.c.id, jobs.c.version).where(jobs.c.id.in_(ids)))

    def held(self, worker: str) -> list[Job]:
        """Return the running jobs of a worker."""
        return self._find(RUNNING, jobs.c.worker == worker)

    def silent(self, seconds: float) -> list[str]:
        """Return the workers without a heartbeat for `seconds`, by name: those that are registered, and those that still have running jobs."""
        known = sa.select(workers.c.name)
        gone = sa.select(jobs.c.worker).where(RUNNING, jobs.c.started < NOW - seconds, jobs.c.worker.not_in(known))
        found = known.where(workers.c.seen < NOW - seconds).union(gone)
        return sorted(row[0] for row in self._rows(found))

    def waiting(self, owner: str | None = None) -> int:
        """Return the number of queued jobs, of one owner or of all."""
        mine = [] if owner is None else [jobs.c.owner == owner]
        [(number,)] = self._rows(sa.select(sa.func.count()).select_from(jobs).where(QUEUED, *mine))
        return int(number)

    def oldest(self) -> float | None:
        """Return when the oldest queued job was accepted; None if none is queued."""
        [(created,)] = self._rows(sa.select(sa.func.min(jobs.c.created)).where(QUEUED))
        return None if created is None else float(created)

    def position(self, job: Job) -> int | None:
        """Return the largest number of jobs that may be taken before this queued one; None if it is not queued.

        Those are its owner's earlier ones, and of each other owner as many and those whose turn it may be: one, or in a cluster what may be at the broker.
        """
        earlier = sa.func.count().filter(sa.tuple_(*ORDER) < sa.tuple_(*order_of(job)))
        here = sa.func.count().filter(jobs.c.id == job.id)
        lengths = sa.select(sa.func.count(), earlier, here).where(QUEUED).group_by(jobs.c.owner)
        rows = self._rows(lengths)
        more = 1 if self._database.embedded else AHEAD
        for _, rank, found in rows:
            if found:
                return int(rank + sum(min(length, rank + more) for length, _, mine in rows if not mine))
        return None

    def statuses(self) -> dict[str, int]:
        """Return the number of jobs by status."""
        return self._pairs(sa.select(jobs.c.status, sa.func.count()).group_by(jobs.c.status))

    def page(self, limit: int, before: float, owner: str | None = None, kind: JobKind = "analysis") -> list[Job]:
        """Return the newest jobs of a kind created before a time, newest first; with an owner, only those granted to it."""
        granted = [] if owner is None else [jobs.c.id.in_(sa.select(grants.c.id).where(grants.c.owner == owner))]
        return self._find(jobs.c.kind == kind, jobs.c.created < before, *granted, newest=limit)

    def chunks(self, id_: str) -> list[ChunkState]:
        """Return the states of the chunks of a study that has not ended, in any order. Thousands are read for each event of its progress."""
        return [ChunkState(*row) for row in self._rows(CHUNK_STATES, {"study": id_})]

    def effects(self, id_: str) -> list[str]:
        """Return the ids of the jobs of effects on an analysis, in any order."""
        return [row.id for row in self._rows(sa.select(jobs.c.id).where(jobs.c.batch == id_, jobs.c.kind == "effect"))]

    def workers(self) -> list[Worker]:
        """Return the workers with a heartbeat in the last minute, by name."""
        listed = sa.select(workers.c.state, workers.c.seen).where(workers.c.seen > NOW - GONE_SECONDS)
        rows = self._rows(listed.order_by(workers.c.name))
        return [replace(WORKERS.validate_json(state), seen=seen) for state, seen in rows]

    def now(self) -> float:
        """Return the time of the database in s since 1970, the only clock that times are compared with."""
        with self._database.read() as connection:
            return self._database.now(connection)

    def close(self) -> None:
        """Close connections."""
        self._database.close()

    def _rows(self, query: sa.Executable, values: Mapping[str, Any] | None = None) -> list[Any]:
        with self._database.read() as connection:
            return list(connection.execute(query, values).all())

    def _pairs(self, query: sa.Select[Any]) -> dict[str, Any]:
        return dict(self._rows(query))

    def _find(self, *conditions: sa.ColumnElement[bool], newest: int | None = None) -> list[Job]:
        """Return the jobs that fulfil the conditions, in the order of an owner's queue, or the `newest` ones, newest first."""
        query = JOBS.where(*conditions)
        query = (
            query.order_by(*ORDER) if newest is None else query.order_by(jobs.c.created.desc(), jobs.c.id).limit(newest)
        )
        with self._database.read() as connection:
            return [to_job(row) for row in connection.execute(query).mappings()]


def order_of(job: Job) -> tuple[int, float, str]:
    """Return the place of a job in the queue of its owner, as ORDER."""
    return job.priority, job.created, job.id


def to_job(values: Mapping[Any, Any]) -> Job:
    """Return the job in a row of the table."""
    return Job(**{**values, "error": json.loads(values["error"]) if values["error"] else None})


def next_turn(which: sa.ColumnElement[bool]) -> sa.Select[Any]:
    """Return the query for the first such job of the owner who was served least recently among those who have one."""
    waits = sa.exists().where(jobs.c.owner == owners.c.owner, which)
    next_owner = sa.select(owners.c.owner).where(waits).order_by(owners.c.served, owners.c.owner).limit(1)
    return FIRST.where(which, jobs.c.owner == next_owner.scalar_subquery())
