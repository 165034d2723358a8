"""What the tests of the record share: both kinds of record, and short words for what happens to a job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headscope.jobs import Claimant, Job, Record, RedisRecord, SqliteRecord, Work

IDS = [f"{number:032x}" for number in range(4)]
PROBLEM = {"code": "worker-lost", "detail": "It died."}
WORKER = Claimant("one")
Open = Callable[[], Record]


@dataclass(frozen=True)
class Place:
    """Where a record is, for any process: a file, or a Redis and the beginning of the keys there."""

    where: str
    prefix: str = ""

    def open(self) -> Record:
        return RedisRecord(self.where, prefix=self.prefix) if self.prefix else SqliteRecord(Path(self.where))


def claim_all(place: Place, name: str) -> list[Job]:
    """All that wait, claimed by a process of its own."""
    record = place.open()
    jobs = [job for claimed in iter(lambda: record.claim(Claimant(name)), []) for job in claimed]
    record.close()
    return jobs


def work(*numbers: int, **more: Any) -> list[Work]:
    """Work with these numbers as ids."""
    return [Work(f"{number:032x}", "{}", **more) for number in numbers]


def accept(record: Record, *numbers: int, priority: int = 0, batch: str | None = None, **more: Any) -> list[Job]:
    """The jobs of work with these numbers as ids, accepted."""
    asked = work(*numbers, **more)
    record.enqueue(asked, priority=priority, batch=batch)
    return [the(record, one.id) for one in asked]


def the(record: Record, id_: str) -> Job:
    """The job of that id, which must be there."""
    job = record.get(id_)
    assert job is not None
    return job


def claimed(record: Record, claimant: Claimant = WORKER) -> Job:
    """The next job, claimed; it must be a single one."""
    (job,) = record.claim(claimant)
    return job


def running(record: Record, number: int = 0, claimant: Claimant = WORKER, **more: Any) -> Job:
    """A job that has been claimed, in a record where nothing else waits."""
    accept(record, number, **more)
    return claimed(record, claimant)


def status(record: Record, id_: str = IDS[0]) -> str | None:
    """The job's status, None if there is none."""
    job = record.get(id_)
    return job and job.status


def order(record: Record, claimant: Claimant = WORKER) -> list[str]:
    """Ids of all that wait, in the order in which one worker takes them, ending each before it takes the next."""
    ids = []
    while jobs := record.claim(claimant):
        for job in jobs:
            ids.append(job.id)
            assert record.finish(job.id, job.run, "done")
    return ids
