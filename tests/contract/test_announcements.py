"""Announced changes: with Redis they arrive at once, without it a little later."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from headscope.database import Database
from headscope.jobs import Job, JobDatabase, Watcher, Worker, announcements
from headscope.jobs.job import End
from tests.contract.job_databases import IDS, Place, accept, claimed, running
from tests.support.compose import Redis, redis_server
from tests.support.postgres import Postgres
from tests.support.server import eventually

# A change that is noticed before the next query, which is this long (s) away, was announced.
NEVER = 3600.0


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Redis]:
    """A Redis that may be killed, and is used again soon."""
    monkeypatch.setattr(announcements, "RETRY_SECONDS", 0.1)
    with redis_server() as running:
        yield running


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker waits for Redis however long it takes: nothing but its announcement wakes a server that never queries by itself."""
    monkeypatch.setattr(announcements, "TIMEOUT_SECONDS", 60.0)


@pytest.fixture
def worker(postgres: Postgres, broker: Redis) -> Iterator[JobDatabase]:
    """The job database of a worker of a cluster."""
    Place(postgres.url).clear()
    database = JobDatabase(Database(postgres.url), announcements.announcer(broker.url))
    yield database
    database.close()


def listen(broker: Redis, watcher: Watcher) -> None:
    """Start a server's thread, and wait until it listens."""
    announcements.listen(broker.url, watcher.announce, watcher.poke)
    _await_listener(broker)


def _await_listener(broker: Redis) -> None:
    with broker.client() as client:
        eventually(lambda: client.pubsub_numsub(announcements.CHANNEL)[0][1] == 1, "a listener")


Finish = Callable[[JobDatabase, Job], object]


def finish(worker: JobDatabase, job: Job) -> None:
    worker.finish(job.id, job.run, "done")


def finish_with_the_next_claim(worker: JobDatabase, job: Job) -> None:
    worker.claim(Worker(job.worker), [End(job.id, job.run, "done")])


async def follow(watcher: Watcher, worker: JobDatabase, number: int, end: Finish = finish) -> None:
    """Run a job, and expect every change of it before the next one is made."""
    accept(worker, number)
    changes = watcher.changes(IDS[number])
    assert (await anext(changes)).status == "queued"
    job = await asyncio.to_thread(claimed, worker)
    assert (await anext(changes)).status == "running"
    await asyncio.to_thread(worker.progress, job.id, job.run, 0.5, "forward", "")
    assert (await anext(changes)).fraction == 0.5
    await asyncio.to_thread(end, worker, job)
    assert [change.status async for change in changes] == ["done"]


@pytest.mark.usefixtures("patient")
def test_every_change_is_announced(worker: JobDatabase, broker: Redis) -> None:
    """A server that does not query by itself sees every change of a job, also after Redis has restarted."""

    async def watch() -> None:
        watcher = Watcher(worker, NEVER)
        listen(broker, watcher)
        await follow(watcher, worker, 0)
        broker.restart()
        _await_listener(broker)
        await follow(watcher, worker, 1, finish_with_the_next_claim)

    asyncio.run(watch())


def test_a_missed_change(worker: JobDatabase, broker: Redis) -> None:
    """A server that does not query by itself sees what has changed while Redis was away, once it listens again."""

    async def watch() -> None:
        watcher = Watcher(worker, NEVER)
        listen(broker, watcher)
        job = await asyncio.to_thread(running, worker)
        changes = watcher.changes(job.id)
        assert (await anext(changes)).status == "running"
        broker.kill()
        finish(worker, job)
        broker.start()
        assert [change.status async for change in changes] == ["done"]

    asyncio.run(watch())


@pytest.mark.usefixtures("patient")
def test_a_refused_listener_tries_again(worker: JobDatabase, broker: Redis) -> None:
    """A server whose Redis refuses the subscription listens once it is allowed."""

    async def watch() -> None:
        watcher = Watcher(worker, NEVER)
        broker.restart("--rename-command", "SUBSCRIBE", "")
        with broker.client() as client:
            before = client.info("errorstats")
            announcements.listen(broker.url, watcher.announce, watcher.poke)
            eventually(lambda: client.info("errorstats") != before, "a refusal")
        broker.restart()
        _await_listener(broker)
        await follow(watcher, worker, 0)

    asyncio.run(watch())


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_without_redis(worker: JobDatabase, broker: Redis, how: str) -> None:
    """Workers go on, and servers see every change by their own queries."""
    watcher = Watcher(worker, 0.1)
    listen(broker, watcher)
    broker.kill() if how == "killed" else broker.pause()
    asyncio.run(follow(watcher, worker, 0))
