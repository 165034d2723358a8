"""Bounds on expensive requests: no client can occupy the threads and the memory that the others need."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Hashable, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import anyio
import anyio.to_thread

from ..errors import TooManyRequests
from ..jobs import LOCAL

T = TypeVar("T")
MIB = 1024 * 1024
# Who sent the request that is being answered; set by the access check.
client: ContextVar[str] = ContextVar("client", default=LOCAL)


class _ClientQueue:
    """The requests of one client: their number, and the client's own slots."""

    def __init__(self, each: int) -> None:
        self.requests, self.slots = 0, asyncio.Semaphore(each)


class Limiter:
    """A bound on requests of one kind: `total` run at a time, and `each` of one client. The others wait without a thread.

    A client has at most `each` requests in the common queue, so that clients take turns. With `waiting`, a client that has so many requests waiting is
    rejected.
    """

    def __init__(self, total: int, each: int, waiting: int | None = None) -> None:
        self._slots, self._threads = asyncio.Semaphore(total), anyio.CapacityLimiter(total)
        self._each, self._most = each, None if waiting is None else each + waiting
        self._queues: dict[str, _ClientQueue] = {}
        self._calls: dict[Hashable, asyncio.Future[Any]] = {}

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Wait for a slot and hold it. Raises TooManyRequests."""
        name = client.get()
        queue = self._queues.setdefault(name, _ClientQueue(self._each))
        if queue.requests == self._most:
            raise TooManyRequests("Too many of your requests are in progress. Wait for their answers, then try again.")
        queue.requests += 1
        try:
            async with queue.slots, self._slots:
                yield
        finally:
            queue.requests -= 1
            if not queue.requests:
                del self._queues[name]

    async def run(self, call: Callable[[], T]) -> T:
        """Call in a thread once there is a slot. The slot is held until the thread ends. Raises TooManyRequests, and what the call raises."""
        async with self.slot():
            return await anyio.to_thread.run_sync(call, limiter=self._threads)

    async def share(self, question: Hashable, call: Callable[[], T]) -> T:
        """As `run`, but a call that answers a question of this client already is awaited instead of another one."""
        key = (client.get(), question)
        running = self._calls.get(key)
        if running is None:
            running = self._calls[key] = asyncio.ensure_future(self.run(call))
            running.add_done_callback(lambda _: self._calls.pop(key))
        found: T = await asyncio.shield(running)
        return found


class MemoryLimiter:
    """A bound on the bytes of large answers in memory: `total`, and `each` of one client. They count until the answer is sent."""

    def __init__(self, total: int, each: int) -> None:
        self._total, self._each = total, each
        self._lock, self._taken = threading.Lock(), Counter[str]()
        self._answer: ContextVar[Counter[str]] = ContextVar("answer")

    @contextmanager
    def answer(self) -> Iterator[None]:
        """Release on exit the bytes that were taken for this answer, in threads too."""
        taken = Counter[str]()
        self._answer.set(taken)
        try:
            yield
        finally:
            with self._lock:
                self._taken -= taken

    def take(self, size: int) -> None:
        """Count bytes before they are in memory. Raises TooManyRequests."""
        name = client.get()
        with self._lock:
            if self._taken[name] + size > self._each or self._taken.total() + size > self._total:
                raise TooManyRequests("Too many large answers are on their way. Read them, then try again.")
            self._taken[name] += size
            self._answer.get()[name] += size


class Limiters:
    """The kinds of expensive requests of a server. Everything else shares the event loop's own threads."""

    def __init__(self) -> None:
        # Readings of finished results, from the disk or the store.
        self.results = Limiter(total=16, each=8)
        # Analyses are checked and tokenised before they are queued.
        self.submissions = Limiter(total=8, each=4)
        # Each takes up to HEADSCOPE_DATASET_BYTES on disk, for as long as the file is coming.
        self.uploads = Limiter(total=8, each=2, waiting=4)
        # Each takes up to HEADSCOPE_DATASET_MEMORY_BYTES, and twice HEADSCOPE_DATASET_BYTES on disk.
        self.datasets = Limiter(total=3, each=2, waiting=4)
        # Each takes a head map, until the last byte is sent.
        self.exports = Limiter(total=16, each=4, waiting=4)
        # Each takes all head maps of two layers.
        self.comparisons = Limiter(total=2, each=1)
        # Head maps and other numbers, at least for the largest answer there is.
        self.memory = MemoryLimiter(total=256 * MIB, each=160 * MIB)
        # Each takes a browser of some 300 MB.
        self.pictures = Limiter(total=1, each=1, waiting=8)
