"""The cluster's job database while its Redis is killed, hanging, emptied, full or rejecting; and its cost with a full queue."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from headscope.errors import BrokerUnavailable
from headscope.jobs import JobDatabase, RedisJobDatabase, Watcher, Work, Worker
from tests.contract.job_databases import IDS, WORKER, accept, claimed, order, running, work
from tests.support.compose import Redis, redis_server
from tests.support.server import eventually


@pytest.fixture
def broker() -> Iterator[Redis]:
    """A broker for one test."""
    with redis_server() as running:
        yield running


@pytest.fixture
def database(broker: Redis) -> Iterator[RedisJobDatabase]:
    opened = RedisJobDatabase(broker.url)
    yield opened
    opened.close()


def back(database: JobDatabase) -> bool:
    """Return whether the job database responds."""
    try:
        return database.now() > 0
    except BrokerUnavailable:
        return False


def test_what_is_accepted_is_durable(broker: Redis, database: RedisJobDatabase) -> None:
    """Redis is killed during many submissions: every acknowledged one survives, complete."""
    accepted: list[str] = []
    refused = threading.Event()

    def submit(thread: int) -> None:
        for number in range(thread * 10_000, (thread + 1) * 10_000):
            try:
                database.enqueue(work(number, owner=f"u{thread}"))
            except BrokerUnavailable:
                refused.set()
                return
            accepted.append(f"{number:032x}")

    with ThreadPoolExecutor(4) as threads:
        futures = [threads.submit(submit, thread) for thread in range(4)]
        eventually(lambda: len(accepted) >= 100, "submissions")
        broker.kill()
        for future in futures:
            future.result()
    assert refused.is_set()
    broker.start()
    eventually(lambda: back(database), "the record")
    jobs = database.get_many(accepted)
    assert len(jobs) == len(accepted) >= 100
    assert all(database.may_read(job.id, job.owner) for job in jobs.values())
    assert set(accepted) <= set(order(database))


def test_a_redis_that_hangs_is_given_up(broker: Redis, database: RedisJobDatabase) -> None:
    """Commands fail early while Redis hangs, and work again afterwards."""
    accept(database, 0)
    broker.pause()
    with pytest.raises(BrokerUnavailable):
        database.get(IDS[0])
    with pytest.raises(BrokerUnavailable):
        database.enqueue(work(1))
    broker.resume()
    eventually(lambda: back(database), "the record")
    assert claimed(database).id == IDS[0]


def test_a_redis_that_restarts(broker: Redis, database: RedisJobDatabase) -> None:
    """Scripts are lost but data is not: runs continue."""
    job = running(database)
    broker.kill()
    with pytest.raises(BrokerUnavailable):
        database.progress(job.id, job.run, 0.5, "forward", "")
    broker.start()
    eventually(lambda: back(database), "the record")
    assert database.progress(job.id, job.run, 0.5, "forward", "")
    assert database.finish(job.id, job.run, "done")


def test_a_redis_that_was_emptied(broker: Redis, database: RedisJobDatabase) -> None:
    """All jobs are missing and waiting callers are notified; work sent again runs, and earlier runs change nothing."""
    accept(database, 0, 1)
    before = claimed(database)
    seen = database.newest_version()

    async def wait() -> list[str]:
        watcher = Watcher(database)
        waiting = [asyncio.create_task(_statuses(watcher, id_)) for id_ in IDS[:2]]
        await asyncio.sleep(0.3)  # the flush comes while they wait; if not, they find nothing, which is right, too
        await asyncio.to_thread(broker.empty)
        await asyncio.to_thread(accept, database, 2)
        return [one for seen in await asyncio.gather(*waiting) for one in seen[-1:]]

    assert asyncio.run(asyncio.wait_for(wait(), 30)) in (["running", "queued"], ["queued"], [])
    assert database.get(IDS[0]) is None
    assert not database.progress(before.id, before.run, 0.5, "forward", "")
    assert not database.finish(before.id, before.run, "done")
    assert not database.cancel(IDS[0])
    assert not database.may_read(IDS[0], "local")
    assert database.expired() == []
    assert database.changed_since(seen)[1] is None
    accept(database, 0)
    assert database.newest_version() > seen
    again = database.claim(WORKER) + database.claim(WORKER)
    assert [job.id for job in again] == [IDS[2], IDS[0]]
    assert min(job.run for job in again) > before.run
    assert not database.finish(before.id, before.run, "done")


async def _statuses(watcher: Watcher, id_: str) -> list[str]:
    return [job.status async for job in watcher.changes(id_)]


def test_a_redis_without_room(broker: Redis, database: RedisJobDatabase) -> None:
    """New work is rejected as a whole; existing jobs can be read, finished and forgotten, which frees memory."""
    accept(database, 0, 1)
    job = claimed(database)
    before = database.newest_version()
    with broker.full():
        with pytest.raises(BrokerUnavailable) as refused:
            accept(database, 2)
        assert "memory" in refused.value.detail
        with pytest.raises(BrokerUnavailable):
            database.grant(IDS[0], "ann")
        assert (database.get(IDS[2]), database.newest_version(), database.waiting()) == (None, before, 1)
        assert database.progress(job.id, job.run, 0.5, "forward", "")
        database.heartbeat(WORKER, [job.run])
        assert database.finish(job.id, job.run, "done")
        assert database.cancel(IDS[1])
        assert database.forget(IDS[1])
        assert database.trim(older_than=-1.0) == 1
    accept(database, 2)
    assert order(database) == [IDS[2]]


def test_a_redis_that_refuses(broker: Redis, database: RedisJobDatabase) -> None:
    """A wrong password and a read-only replica raise one clear error until they are fixed."""
    accept(database, 0)
    broker.kill()
    broker.start(REDIS_PASSWORD="changed")
    with pytest.raises(BrokerUnavailable):
        database.get(IDS[0])
    broker.restart("--replicaof", "127.0.0.1 1")
    assert database.waiting() == 1
    with pytest.raises(BrokerUnavailable):
        accept(database, 1)
    broker.restart()
    accept(database, 1)
    assert database.waiting() == 2


def test_a_full_queue_costs_no_more(broker: Redis, database: RedisJobDatabase) -> None:
    """Claims and other commands need no more Redis commands with 5,000 jobs of 50 owners than with 500."""

    def fill(low: int, high: int) -> None:
        for number in range(50):
            jobs = [
                Work(f"{100 * number + one:032x}", "{}", model="m", recipe="r", tokens=one, owner=f"user-{number}")
                for one in range(low, high)
            ]
            database.enqueue(jobs)

    with broker.client() as watched:

        def calls() -> int:
            return sum(of["calls"] for name, of in watched.info("commandstats").items() if name != "cmdstat_info")

        def commands(ask: Callable[[], object]) -> int:
            before = calls()
            ask()
            return calls() - before

        def costs() -> list[int]:
            last = database.page(1, float("inf"), "user-49")[0]
            return [
                commands(ask)
                for ask in (
                    lambda: database.claim(Worker("w", warm=frozenset({"m"}), most_tokens=1)),
                    lambda: database.position(last),
                    lambda: database.get(last.id),
                    lambda: database.enqueue(work(9999, owner="ann")),
                    lambda: database.waiting("ann"),
                    lambda: database.page(10, float("inf"), "user-7"),
                )
            ]

        fill(0, 10)
        few = costs()
        database.cancel(work(9999, owner="ann")[0].id)
        fill(10, 100)
        assert all(many <= 2 * before for many, before in zip(costs(), few, strict=True)), few
