"""Asynchronous waiting for jobs: one query of the job database serves all waiting callers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress

from ..errors import DatabaseUnavailable, HeadscopeError
from .job import Job
from .job_database import JobDatabase

logger = logging.getLogger("headscope.jobs")

# How often the job database is queried, in s: by itself, and where changes are announced.
TICK_SECONDS, ANNOUNCED_SECONDS = 0.1, 1.0
# How often an unavailable job database is retried, in s.
RETRY_SECONDS = 0.5


class Watcher:
    """Notifies async callers about changes of jobs. The ticker runs every `seconds` while there are callers; poke() triggers it at once.

    A tick queries the versions of the jobs that callers wait for, and the jobs that have changed: two queries for any number of callers.
    """

    def __init__(self, database: JobDatabase, seconds: float = TICK_SECONDS) -> None:
        self._database, self._seconds = database, seconds
        self._waiting: dict[str, set[asyncio.Queue[Job | None]]] = {}
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
        if any(id_ in self._waiting for id_ in ids):
            self.poke()

    async def changes(self, id_: str, after: int = 0) -> AsyncIterator[Job]:
        """Yield the job after each change since version `after`, until it has ended or is removed. States in between may be skipped, but not the last one."""
        updates: asyncio.Queue[Job | None] = asyncio.Queue()
        self._waiting.setdefault(id_, set()).add(updates)
        self._loop = asyncio.get_running_loop()
        if self._ticker is None or self._ticker.done():
            self._ticker = asyncio.create_task(self._tick())
        try:
            seen = 0
            job = await self._get(id_)
            while job is not None:
                seen = max(seen, job.version)
                if job.version > after:
                    after = job.version
                    yield job
                if job.terminal and job.version == seen:  # not a change from before our own query
                    return
                job = await _latest(updates)
        finally:
            self._waiting[id_].discard(updates)
            if not self._waiting[id_]:
                del self._waiting[id_]

    async def _get(self, id_: str) -> Job | None:
        """Return the job, once the job database is available. The caller is already subscribed."""
        while True:
            try:
                return await asyncio.to_thread(self._database.get, id_)
            except DatabaseUnavailable:
                await asyncio.sleep(RETRY_SECONDS)

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
        known: dict[str, int | None] = {}
        away = False
        while self._waiting:
            try:
                known, away = await self._notify(known), False
            except HeadscopeError as error:  # the job database is not available: waiting requests keep waiting
                if not away:
                    logger.warning("cannot read changes of jobs: %s", error)
                away = True
            with suppress(TimeoutError):
                async with asyncio.timeout(RETRY_SECONDS if away else self._seconds):
                    await self._poked.wait()
            self._poked.clear()

    async def _notify(self, known: dict[str, int | None]) -> dict[str, int | None]:
        """Send callers the jobs whose version is not the known one, None for a job that is gone; return the versions now."""
        ids = list(self._waiting)
        found = await asyncio.to_thread(self._database.versions, ids)
        changed = [id_ for id_ in ids if id_ not in known or known[id_] != found.get(id_)]
        jobs = await asyncio.to_thread(self._database.get_many, changed) if changed else {}
        for id_ in changed:
            for updates in self._waiting.get(id_, ()):
                updates.put_nowait(jobs.get(id_))
        return {id_: found.get(id_) for id_ in ids}


async def _latest(updates: asyncio.Queue[Job | None]) -> Job | None:
    """Return the last of the received states, or wait for the next one."""
    job = await updates.get()
    while not updates.empty():
        job = updates.get_nowait()
    return job
