"""Waiting for jobs without blocking: one look at the record serves everybody who waits."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable

from ..errors import BrokerUnavailable, HeadscopeError
from .job import Job, JobDatabase

logger = logging.getLogger("headscope.jobs")

TICK_SECONDS = 0.1
# How often a record that is away is asked whether it is back, in s.
AWAY_SECONDS = 0.5


class Watcher:
    """Tells async callers about changes of jobs. The ticker runs only while somebody waits; poke() makes it look at once.

    A tick asks the record what has changed, and for those of the changed jobs that somebody waits for: two questions, however many wait.
    """

    def __init__(self, database: JobDatabase) -> None:
        self._database = database
        self._waiting: dict[str, set[asyncio.Queue[Job | None]]] = {}
        self._ticker: asyncio.Task[None] | None = None
        self._poked = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    def poke(self) -> None:
        """Something changed. May be called from any thread."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._poked.set)

    async def changes(self, id_: str, after: int = 0) -> AsyncIterator[Job]:
        """The job each time it has changed since version `after`, until it has ended or is no longer there. States in between may be skipped, the last never is."""
        news: asyncio.Queue[Job | None] = asyncio.Queue()
        self._waiting.setdefault(id_, set()).add(news)
        self._loop = asyncio.get_running_loop()
        if self._ticker is None or self._ticker.done():
            self._ticker = asyncio.create_task(self._tick())
        try:
            seen = 0
            job = await self._found(id_)
            while job is not None:
                seen = max(seen, job.version)
                if job.version > after:
                    after = job.version
                    yield job
                if job.terminal and job.version == seen:  # and not news from before our own look
                    return
                job = await _latest(news)
        finally:
            self._waiting[id_].discard(news)
            if not self._waiting[id_]:
                del self._waiting[id_]

    async def _found(self, id_: str) -> Job | None:
        """The job as it is now, or as it is once the record is back: who waits has begun to listen already."""
        while True:
            try:
                return await asyncio.to_thread(self._database.get, id_)
            except BrokerUnavailable:
                await asyncio.sleep(AWAY_SECONDS)

    async def ended(self, id_: str, seconds: float) -> Job | None:
        """The job once it has ended, or as it is after `seconds`; None if there is none."""
        job = await asyncio.to_thread(self._database.get, id_)
        if job is None or job.terminal:
            return job
        try:
            async with asyncio.timeout(seconds):
                async for change in self.changes(id_, job.version):
                    job = change
        except TimeoutError:
            pass
        return job

    async def _tick(self) -> None:
        version: int | None = None
        away = False
        while self._waiting:
            try:
                version, away = await self._look(version), False
            except HeadscopeError as error:  # the job database is not available: waiting requests keep waiting
                if not away:
                    logger.warning("changes of jobs can't be read now: %s", error)
                away = True
            try:
                async with asyncio.timeout(AWAY_SECONDS if away else TICK_SECONDS):
                    await self._poked.wait()
            except TimeoutError:
                pass
            self._poked.clear()

    async def _look(self, version: int | None) -> int:
        """Tell everybody what has changed since `version` (None: all that is waited for); the version now."""
        newest, changed = await asyncio.to_thread(self._changed, version)
        wanted = self._waiting.keys() if changed is None else self._waiting.keys() & set(changed)
        if wanted:
            ids = list(wanted)
            jobs = await asyncio.to_thread(self._database.get_many, ids)
            for id_ in ids:
                for news in self._waiting.get(id_, ()):
                    news.put_nowait(jobs.get(id_))
        return newest

    def _changed(self, version: int | None) -> tuple[int, Iterable[str] | None]:
        return (self._database.newest_version(), None) if version is None else self._database.changed_since(version)


async def _latest(news: asyncio.Queue[Job | None]) -> Job | None:
    """The last of the states that have come since, or the next one."""
    job = await news.get()
    while not news.empty():
        job = news.get_nowait()
    return job
