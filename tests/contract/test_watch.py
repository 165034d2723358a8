"""Waiting for jobs: every caller sees the end, with a constant number of queries."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from headscope.errors import DatabaseUnavailable
from headscope.jobs import Job, JobDatabase, Watcher
from tests.contract.job_databases import IDS, accept, claimed, running, the
from tests.support.server import eventually


class CountingDatabase:
    """A job database that counts queries, and can be made to fail."""

    def __init__(self, database: JobDatabase) -> None:
        self.database, self.calls, self.away = database, Counter[str](), False

    def __getattr__(self, name: str) -> Any:
        self.calls[name] += 1
        if self.away:
            raise DatabaseUnavailable("away")
        return getattr(self.database, name)


def test_everybody_sees_the_end(database: JobDatabase) -> None:
    """Five hundred callers wait for two jobs with progress, and others join late."""

    async def watch() -> None:
        watcher = Watcher(database)
        accept(database, 0, 1)
        waiting = [asyncio.create_task(_collect(watcher, IDS[number % 2])) for number in range(500)]
        await asyncio.sleep(0)
        for _ in range(2):
            job = await asyncio.to_thread(claimed, database)
            for step in range(20):
                await asyncio.to_thread(database.progress, job.id, job.run, step / 20, "forward", "")
            await asyncio.to_thread(database.finish, job.id, job.run, "done")
            watcher.poke()
        for seen in await asyncio.gather(*waiting):
            versions = [job.version for job in seen]
            assert versions == sorted(set(versions))
            assert [job.terminal for job in seen] == [False] * (len(seen) - 1) + [True]
        last = the(database, IDS[0])
        assert await _collect(watcher, IDS[0]) == [last]
        assert await _collect(watcher, IDS[0], last.version) == []
        assert await _collect(watcher, IDS[3]) == []

    asyncio.run(watch())


def test_one_look_serves_everybody(database: JobDatabase) -> None:
    """A tick makes one query for versions, and one for jobs that have changed."""

    async def watch() -> None:
        asked = CountingDatabase(database)
        watcher = Watcher(asked)
        job = running(database, 0)
        other = running(database, 1)
        waiting = [asyncio.create_task(_collect(watcher, IDS[0])) for _ in range(50)]
        await asyncio.to_thread(eventually, lambda: asked.calls["versions"] >= 2, "questions")
        assert asked.calls["get_many"] == 1
        asked.calls.clear()
        database.progress(other.id, other.run, 0.5, "forward", "")
        await asyncio.to_thread(eventually, lambda: asked.calls["versions"] >= 3, "questions")
        assert asked.calls.keys() == {"versions"}
        database.finish(job.id, job.run, "done")
        await asyncio.gather(*waiting)
        assert asked.calls["get_many"] == 1

    asyncio.run(watch())


async def _follow(asked: CountingDatabase) -> asyncio.Task[list[Job]]:
    """A caller that follows the first job, once it has waited for a while."""
    waiting = asyncio.create_task(_collect(Watcher(asked), IDS[0]))
    await asyncio.to_thread(eventually, lambda: asked.calls["get_many"] >= 3, "questions")
    return waiting


def test_few_callers_take_one_query(database: JobDatabase) -> None:
    """Their jobs are read at once; a caller hears of changes only."""

    async def watch() -> None:
        asked, job = CountingDatabase(database), running(database)
        waiting = await _follow(asked)
        database.finish(job.id, job.run, "done")
        assert [seen.status for seen in await waiting] == ["running", "done"]
        assert asked.calls.keys() == {"get_many"}

    asyncio.run(watch())


def test_who_waits_outlives_an_outage(database: JobDatabase) -> None:
    """Callers get no wrong state while the job database is away, and the end once it is back."""

    async def watch() -> None:
        asked, job = CountingDatabase(database), running(database)
        waiting = await _follow(asked)
        asked.away = True
        for ended in (False, True):  # a question that was asked before has its answer before the next one is asked
            asked.calls.clear()
            await asyncio.to_thread(eventually, lambda: asked.calls["get_many"] >= 2, "questions")
            if not ended:
                database.finish(job.id, job.run, "done")
        assert not waiting.done()
        asked.away = False
        assert (await waiting)[-1].status == "done"

    asyncio.run(watch())


def test_a_new_caller_gets_the_state_of_now(database: JobDatabase) -> None:
    """A job that was cancelled and sent again is followed to its new end, also by callers that arrive during a query, or while others wait already."""

    async def watch() -> None:
        watcher = Watcher(database, seconds=3600.0)
        accept(database, 0)
        others = [watcher.changes(IDS[0]) for _ in range(3)]
        asked = [asyncio.create_task(anext(changes)) for changes in others[:2]]
        await asyncio.sleep(0)
        asked += [asyncio.create_task(anext(others[2]))]
        assert {job.status for job in await asyncio.gather(*asked)} == {"queued"}
        database.cancel(IDS[0])
        accept(database, 0)
        late = watcher.changes(IDS[0])
        assert (await anext(late)).status == "queued"
        job = claimed(database)
        database.finish(job.id, job.run, "done")
        watcher.poke()
        for changes in (*others, late):
            assert [change.status async for change in changes][-1] == "done"

    asyncio.run(watch())


def test_waiting_has_a_limit(database: JobDatabase) -> None:
    """`ended` returns the job in its current state after the timeout."""
    job = running(database)
    asyncio.run(_ended(database, 0.05, job))
    database.finish(job.id, job.run, "done")
    asyncio.run(_ended(database, 60.0, the(database, job.id)))


async def _ended(database: JobDatabase, seconds: float, expected: Job) -> None:
    assert await Watcher(database).ended(expected.id, seconds) == expected


async def _collect(watcher: Watcher, id_: str, after: int = 0) -> list[Job]:
    return [job async for job in watcher.changes(id_, after)]
