"""Lookups that concurrent requests share, although each must see what was true when it arrived."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class Lookups(Generic[T]):
    """Blocking lookups by key, one at a time for each. Requests that arrive during a lookup share the next one, which begins after all of them have arrived."""

    def __init__(self) -> None:
        self._running: dict[Hashable, asyncio.Task[T]] = {}
        self._next: dict[Hashable, asyncio.Task[T]] = {}

    async def get(self, key: Hashable, call: Callable[[], T]) -> T:
        """Return what `call` returns in a thread, or raise its error. Equal keys must mean equal calls."""
        if key not in self._running:
            return await asyncio.shield(self._start(key, call))
        if key not in self._next:
            self._next[key] = asyncio.create_task(self._follow(key, call))
        return await asyncio.shield(self._next[key])

    async def _follow(self, key: Hashable, call: Callable[[], T]) -> T:
        while key in self._running:
            await asyncio.wait([self._running[key]])
        del self._next[key]
        return await self._start(key, call)

    def _start(self, key: Hashable, call: Callable[[], T]) -> asyncio.Task[T]:
        task = self._running[key] = asyncio.create_task(asyncio.to_thread(call))
        task.add_done_callback(lambda _: self._running.pop(key))
        return task
