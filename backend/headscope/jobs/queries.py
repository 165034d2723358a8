"""What can be read of jobs and workers."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import fields
from typing import Any

import sqlalchemy as sa

from ..database import NOW
from ..database.tables import grants, jobs, owners, runs, workers
from .grants import Grants
from .job import ChunkState, Job, JobKind, Run, Worker, WorkerState

# A worker without a heartbeat for this long (s) is no longer listed.
GONE_SECONDS = 60.0
# The order of an owner's queue: single requests before batches, then order of arrival.
ORDER = (jobs.c.priority, jobs.c.created, jobs.c.id)
COLUMNS = [jobs.c[field.name] for field in fields(Job)]
JOBS = sa.select(*COLUMNS)
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

    def expired(self, seconds: float | None = None, name: str | None = None) -> list[Job]:
        """Return the running jobs without a heartbeat for `seconds` (None: all running jobs), of one worker or of all."""
        lost = sa.select(runs.c.run).where(runs.c.cancelled.is_(None))
        if name is not None:
            lost = lost.where(runs.c.worker == name)
        if seconds is not None:
            lost = lost.where(runs.c.seen < NOW - seconds)
        return self._find(RUNNING, jobs.c.run.in_(lost))

    def unreleased(self, seconds: float, name: str | None = None) -> list[Run]:
        """Return the runs cancelled more than `seconds` ago that their worker has not released by `finish`, of one worker or of all."""
        found = sa.select(runs.c.id, runs.c.run, runs.c.worker).where(runs.c.cancelled < NOW - seconds)
        if name is not None:
            found = found.where(runs.c.worker == name)
        return [Run(*row) for row in self._rows(found)]

    def waiting(self, owner: str | None = None) -> int:
        """Return the number of queued jobs, of one owner or of all."""
        mine = [] if owner is None else [jobs.c.owner == owner]
        return int(self._value(sa.select(sa.func.count()).select_from(jobs).where(QUEUED, *mine)))

    def oldest(self) -> float | None:
        """Return when the oldest queued job was accepted; None if none is queued."""
        found: float | None = self._value(sa.select(sa.func.min(jobs.c.created)).where(QUEUED))
        return found

    def position(self, job: Job) -> int | None:
        """Return how many jobs will be taken before this queued one; None if it is not queued.

        In a cluster, what was sent to the broker goes first, unless it is of a batch and this is not. Then owners take turns: before the job at rank r of an
        owner, each other owner has r turns, and one more if it was served less recently.
        """
        sent = jobs.c.sent.is_not(None)
        mine = self._rows(sa.select(jobs.c.sent, jobs.c.owner).where(QUEUED, jobs.c.id == job.id))
        if not mine:
            return None
        ahead = sa.select(sa.func.count()).select_from(jobs).where(QUEUED, sent, jobs.c.priority <= job.priority)
        if mine[0].sent is not None:
            return int(self._value(ahead.where(sa.tuple_(jobs.c.sent, *ORDER) < sa.tuple_(mine[0].sent, *_key(job)))))
        earlier = sa.tuple_(*ORDER) < sa.tuple_(*_key(job))
        queues = (
            sa.select(jobs.c.owner, sa.func.count(), sa.func.count().filter(earlier))
            .join(owners, jobs.c.owner == owners.c.owner)
            .where(QUEUED, ~sent)
            .group_by(jobs.c.owner, owners.c.served)
            .order_by(owners.c.served, jobs.c.owner)
        )
        lengths = self._rows(queues)
        ranks = ((place, rank) for place, (owner, _, rank) in enumerate(lengths) if owner == mine[0].owner)
        found = next(ranks, None)
        if found is None:  # it has just been sent or claimed
            return None
        place, rank = found
        others = (min(length, rank + (n < place)) for n, (_, length, _) in enumerate(lengths) if n != place)
        return int(self._value(ahead) + rank + sum(others))

    def statuses(self) -> dict[str, int]:
        """Return the number of jobs by status."""
        return self._pairs(sa.select(jobs.c.status, sa.func.count()).group_by(jobs.c.status))

    def page(self, limit: int, before: float, owner: str | None = None, kind: JobKind = "analysis") -> list[Job]:
        """Return the newest jobs of a kind created before a time, newest first; with an owner, only those granted to it."""
        granted = [] if owner is None else [jobs.c.id.in_(sa.select(grants.c.id).where(grants.c.owner == owner))]
        return self._find(jobs.c.kind == kind, jobs.c.created < before, *granted, newest=limit)

    def chunks(self, id_: str) -> list[ChunkState]:
        """Return the chunks of a study that has not ended, in any order."""
        columns = [jobs.c[name] for name in ChunkState._fields]
        return [
            ChunkState(*row)
            for row in self._rows(sa.select(*columns).where(jobs.c.batch == id_, jobs.c.kind == "chunk"))
        ]

    def effects(self, id_: str) -> list[str]:
        """Return the ids of the jobs of effects on an analysis, in any order."""
        return [row.id for row in self._rows(sa.select(jobs.c.id).where(jobs.c.batch == id_, jobs.c.kind == "effect"))]

    def workers(self) -> list[WorkerState]:
        """Return the workers with a heartbeat in the last minute, by name."""
        listed = sa.select(workers.c.state, workers.c.seen).where(workers.c.seen > NOW - GONE_SECONDS)
        held = self._rows(sa.select(runs.c.worker, runs.c.id).order_by(runs.c.run))
        states = [(Worker.from_json(state), seen) for state, seen in self._rows(listed.order_by(workers.c.name))]
        return [
            WorkerState(worker, seen, tuple(id_ for name, id_ in held if name == worker.name))
            for worker, seen in states
        ]

    def now(self) -> float:
        """Return the time of the database in s since 1970, the only clock that times are compared with."""
        with self._database.read() as connection:
            return self._database.now(connection)

    def close(self) -> None:
        """Close connections."""
        self._database.close()

    def _rows(self, query: sa.Select[Any], values: Mapping[str, Any] | None = None) -> list[Any]:
        with self._database.read() as connection:
            return list(connection.execute(query, values).all())

    def _pairs(self, query: sa.Select[Any]) -> dict[str, Any]:
        return dict(self._rows(query))

    def _value(self, query: sa.Select[Any]) -> Any:
        with self._database.read() as connection:
            return connection.execute(query).scalar()

    def _find(self, *conditions: sa.ColumnElement[bool], newest: int | None = None) -> list[Job]:
        """Return the jobs that fulfil the conditions, in the order of an owner's queue, or the `newest` ones, newest first."""
        query = JOBS.where(*conditions)
        query = (
            query.order_by(*ORDER) if newest is None else query.order_by(jobs.c.created.desc(), jobs.c.id).limit(newest)
        )
        with self._database.read() as connection:
            return [to_job(row) for row in connection.execute(query).mappings()]


def _key(job: Job) -> tuple[int, float, str]:
    return job.priority, job.created, job.id


def to_job(values: Mapping[Any, Any]) -> Job:
    """Return the job in a row of the table."""
    return Job(**{**values, "error": json.loads(values["error"]) if values["error"] else None})


def next_turn(which: sa.ColumnElement[bool]) -> sa.Select[Any]:
    """Return the query for the first such job of the owner who was served least recently among those who have one."""
    waits = sa.exists().where(jobs.c.owner == owners.c.owner, which)
    next_owner = sa.select(owners.c.owner).where(waits).order_by(owners.c.served, owners.c.owner).limit(1)
    return FIRST.where(which, jobs.c.owner == next_owner.scalar_subquery())
