"""What the tests of the record share: both kinds of record, and short words for what happens to a job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headscope.jobs import Job, JobDatabase, RedisJobDatabase, SqliteJobDatabase, Work, Worker

IDS = [f"{number:032x}" for number in range(4)]
PROBLEM = {"code": "worker-lost", "detail": "It died."}
WORKER = Worker("one")
Open = Callable[[], JobDatabase]


@dataclass(frozen=True)
class Place:
    """Where a record is, for any process: a file, or a Redis and the beginning of the keys there."""

    where: str
    prefix: str = ""

    def open(self) -> JobDatabase:
        return RedisJobDatabase(self.where, prefix=self.prefix) if self.prefix else SqliteJobDatabase(Path(self.where))


def claim_all(place: Place, name: str) -> list[Job]:
    """All that wait, claimed by a process of its own."""
    database = place.open()
    jobs = [job for claimed in iter(lambda: database.claim(Worker(name)), []) for job in claimed]
    database.close()
    return jobs


def work(*numbers: int, **more: Any) -> list[Work]:
    """Work with these numbers as ids."""
    return [Work(f"{number:032x}", "{}", **more) for number in numbers]


def accept(database: JobDatabase, *numbers: int, priority: int = 0, batch: str | None = None, **more: Any) -> list[Job]:
    """The jobs of work with these numbers as ids, accepted."""
    asked = work(*numbers, **more)
    database.enqueue(asked, priority=priority, batch=batch)
    return [the(database, one.id) for one in asked]


def the(database: JobDatabase, id_: str) -> Job:
    """The job of that id, which must be there."""
    job = database.get(id_)
    assert job is not None
    return job


def claimed(database: JobDatabase, worker: Worker = WORKER) -> Job:
    """The next job, claimed; it must be a single one."""
    (job,) = database.claim(worker)
    return job


def running(database: JobDatabase, number: int = 0, worker: Worker = WORKER, **more: Any) -> Job:
    """A job that has been claimed, in a record where nothing else waits."""
    accept(database, number, **more)
    return claimed(database, worker)


def status(database: JobDatabase, id_: str = IDS[0]) -> str | None:
    """The job's status, None if there is none."""
    job = database.get(id_)
    return job and job.status


def order(database: JobDatabase, worker: Worker = WORKER) -> list[str]:
    """Ids of all that wait, in the order in which one worker takes them, ending each before it takes the next."""
    ids = []
    while jobs := database.claim(worker):
        for job in jobs:
            ids.append(job.id)
            assert database.finish(job.id, job.run, "done")
    return ids
