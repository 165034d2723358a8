"""Helpers for tests of job databases."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headscope.database import Database, schema
from headscope.database.tables import metadata
from headscope.jobs import Job, JobDatabase, Work, Worker

IDS = [f"{number:032x}" for number in range(4)]
PROBLEM = {"code": "worker-lost", "detail": "It died."}
WORKER = Worker("one")
Open = Callable[[], JobDatabase]


@dataclass(frozen=True)
class Place:
    """The location of a job database, for any process: a file, or the URL of a PostgreSQL."""

    where: str | Path

    def open(self) -> JobDatabase:
        return JobDatabase(Database(self.where))

    def clear(self) -> None:
        """Remove everything from the tables."""
        database = Database(self.where)
        with database.change() as connection:
            connection.exec_driver_sql(f"TRUNCATE {', '.join(metadata.tables)}")
        database.close()


def prepare(where: str | Path) -> None:
    """Create the tables."""
    database = Database(where)
    try:
        schema.prepare(database)
    finally:
        database.close()


def claim_all(place: Place, name: str) -> list[tuple[str, int]]:
    """Claim all queued jobs, in another process; return their ids and runs."""
    database = place.open()
    jobs = [job for claimed in iter(lambda: database.claim(Worker(name)), []) for job in claimed]
    database.close()
    return [(job.id, job.run) for job in jobs]


def work(*numbers: int, **more: Any) -> list[Work]:
    """Return work with these numbers as ids."""
    return [Work(f"{number:032x}", "{}", **more) for number in numbers]


def accept(database: JobDatabase, *numbers: int, priority: int = 0, batch: str | None = None, **more: Any) -> list[Job]:
    """Enqueue work with these numbers as ids; return its jobs."""
    asked = work(*numbers, **more)
    database.enqueue(asked, priority=priority, batch=batch)
    return [the(database, one.id) for one in asked]


def the(database: JobDatabase, id_: str) -> Job:
    """Return a job, which must exist."""
    job = database.get(id_)
    assert job is not None
    return job


def claimed(database: JobDatabase, worker: Worker = WORKER) -> Job:
    """Claim the next job, which must be a single one."""
    (job,) = database.claim(worker)
    return job


def running(database: JobDatabase, number: int = 0, worker: Worker = WORKER, **more: Any) -> Job:
    """Enqueue and claim a job, in a database without other queued jobs."""
    accept(database, number, **more)
    return claimed(database, worker)


def status(database: JobDatabase, id_: str = IDS[0]) -> str | None:
    """Return a job's status, None if there is no job."""
    job = database.get(id_)
    return job and job.status


def order(database: JobDatabase, worker: Worker = WORKER) -> list[str]:
    """Claim and finish all queued jobs with one worker; return their ids in this order."""
    ids = []
    while jobs := database.claim(worker):
        for job in jobs:
            ids.append(job.id)
            assert database.finish(job.id, job.run, "done")
    return ids
