"""Asynchronous waiting for jobs: one query of the job database serves all waiting callers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from ..errors import HeadscopeError
from .job import Job
from .job_database import JobDatabase

logger = logging.getLogger("headscope.jobs")

# How often the job database is queried, in s: by itself, and where changes are announced.
TICK_SECONDS, ANNOUNCED_SECONDS = 0.1, 1.0
# How often an unavailable job database is retried, in s.
RETRY_SECONDS = 0.5
# So many callers' jobs are read without asking for their versions first.
FEW = 4


@dataclass(eq=False, slots=True)
class _Caller:
    """One that waits for a job, with its latest state (None once it is gone) and version; before the first query its version is -1."""

    id: str
    job: Job | None = None
    version: int | None = -1
    news: asyncio.Event = field(default_factory=asyncio.Event)


class Watcher:
    """Notifies async callers about changes of jobs. The ticker runs every `seconds` while there are callers; poke() triggers it at once.

    A tick queries the versions of the jobs that callers wait for, and the jobs that have changed: two queries for any number of callers, and one for a few.
    """

    def __init__(self, database: JobDatabase, seconds: float = TICK_SECONDS) -> None:
        self._database, self._seconds = database, seconds
        self._callers: set[_Caller] = set()
        self._ticker: asyncio.Task[None] | None = None
        self._poked = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    def poke(self) -> None:
        """Check for changes now. May be called from any thread."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._poked.set)

    def announce(self, ids: Iterable[str]) -> None:
        """Check for changes now if callers wait for one of these jobs. May be called from any thread."""
        if not {caller.id for caller in self._callers.copy()}.isdisjoint(ids):
            self.poke()

    async def changes(self, id_: str, after: int = 0) -> AsyncIterator[Job]:
        """Yield the job after each change since version `after`, until it has ended or is removed. States in between may be skipped, but not the last one."""
        caller = _Caller(id_)
        self._callers.add(caller)
        self._loop = asyncio.get_running_loop()
        if self._ticker is None or self._ticker.done():
            self._ticker = asyncio.create_task(self._tick())
        self._poked.set()  # a new caller's job is read at once
        try:
            while True:
                await caller.news.wait()
                caller.news.clear()
                job = caller.job
                if job is not None and job.version > after:
                    after = job.version
                    yield job
                if job is None or job.terminal:
                    return
        finally:
            self._callers.discard(caller)

    async def ended(self, id_: str, seconds: float) -> Job | None:
        """Return the job once it has ended, or after `seconds`; None if there is none."""
        job = await asyncio.to_thread(self._database.get, id_)
        if job is None or job.terminal:
            return job
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                async for change in self.changes(id_, job.version):
                    job = change
        return job

    async def _tick(self) -> None:
        away = False
        while self._callers:
            try:
                await self._notify()
                away = False
            except HeadscopeError as error:  # the job database is not available: waiting requests keep waiting
                if not away:
                    logger.warning("cannot read changes of jobs: %s", error)
                away = True
            with suppress(TimeoutError):
                async with asyncio.timeout(RETRY_SECONDS if away else self._seconds):
                    await self._poked.wait()
            self._poked.clear()

    async def _notify(self) -> None:
        """Give callers the jobs whose version is not the one they know."""
        behind = callers = list(self._callers)
        if len(callers) > FEW:
            found = await asyncio.to_thread(self._database.versions, {caller.id for caller in callers})
            behind = [caller for caller in callers if caller.version != found.get(caller.id)]
        jobs = await asyncio.to_thread(self._database.get_many, {caller.id for caller in behind}) if behind else {}
        for caller in behind:
            job = jobs.get(caller.id)
            version = job.version if job else None
            if version != caller.version:
                caller.job, caller.version = job, version
                caller.news.set()
