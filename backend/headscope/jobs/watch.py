"""Waiting for jobs without blocking: one look at the record serves everybody who waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from .record import Job, Record

TICK_SECONDS = 0.1


class Watcher:
    """Tells async callers about changes of jobs. The ticker runs only while somebody waits; poke() makes it look at once."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._waiting: dict[str, set[asyncio.Event]] = {}
        self._ticker: asyncio.Task[None] | None = None
        self._poked = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    def poke(self) -> None:
        """Something changed. May be called from any thread."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._poked.set)

    async def changes(self, id_: str, after: int = 0) -> AsyncIterator[Job]:
        """The job each time it has changed since version `after`, until it has ended. States in between may be skipped, the last never is."""
        event = asyncio.Event()
        self._waiting.setdefault(id_, set()).add(event)
        self._loop = asyncio.get_running_loop()
        if self._ticker is None or self._ticker.done():
            self._ticker = asyncio.create_task(self._tick())
        try:
            while True:
                event.clear()
                job = await asyncio.to_thread(self._record.get, id_)
                if job is None:
                    return
                if job.version > after:
                    after = job.version
                    yield job
                if job.terminal:
                    return
                await event.wait()
        finally:
            self._waiting[id_].discard(event)
            if not self._waiting[id_]:
                del self._waiting[id_]

    async def ended(self, id_: str, seconds: float) -> Job | None:
        """The job once it has ended, or as it is after `seconds`; None if there is none."""
        job: Job | None = None
        try:
            async with asyncio.timeout(seconds):
                async for change in self.changes(id_):
                    job = change
        except TimeoutError:
            pass
        return job

    async def _tick(self) -> None:
        version = await asyncio.to_thread(self._record.newest)
        changed = list(self._waiting)  # whoever looked before that must look again
        while self._waiting:
            for id_ in changed:
                for event in self._waiting.get(id_, ()):
                    event.set()
            try:
                async with asyncio.timeout(TICK_SECONDS):
                    await self._poked.wait()
            except TimeoutError:
                pass
            self._poked.clear()
            version, changed = await asyncio.to_thread(self._record.changed_since, version)
