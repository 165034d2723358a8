"""Limits on expensive requests, so that no client takes the threads and memory that others need."""

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

from ..errors import BudgetExceeded, ServerBusy, TooManyRequests
from ..jobs import LOCAL

T = TypeVar("T")
MIB = 1024 * 1024
# The client of the current request; set by the access check.
client: ContextVar[str] = ContextVar("client", default=LOCAL)


class _ClientQueue:
    """The requests of one client: their number, and the client's slots."""

    def __init__(self, each: int) -> None:
        self.requests, self.slots = 0, asyncio.Semaphore(each)


class Limiter:
    """A limit on concurrent requests of one kind: `total`, and `each` per client. Other requests wait without a thread.

    A client has at most `each` requests in the shared queue, so that clients take turns. With `waiting`, a client that has this many more requests
    waiting is rejected.
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
            raise TooManyRequests(
                "Too many of your requests are in progress. Wait for their responses, then try again."
            )
        queue.requests += 1
        try:
            async with queue.slots, self._slots:
                yield
        finally:
            queue.requests -= 1
            if not queue.requests:
                del self._queues[name]

    async def run(self, call: Callable[[], T]) -> T:
        """Wait for a slot, and run `call` in a thread, which holds the slot until it ends. Raises TooManyRequests and the errors of `call`."""
        async with self.slot():
            return await anyio.to_thread.run_sync(call, limiter=self._threads)

    async def share(self, question: Hashable, call: Callable[[], T]) -> T:
        """Run `call`, or await the call that is already running for the same client and question."""
        key = (client.get(), question)
        running = self._calls.get(key)
        if running is None:
            running = self._calls[key] = asyncio.ensure_future(self.run(call))
            running.add_done_callback(lambda _: self._calls.pop(key))
        found: T = await asyncio.shield(running)
        return found


class MemoryLimiter:
    """A limit on bytes in memory: `total`, and `each` per client. Safe to use from any thread."""

    def __init__(self, total: int, each: int) -> None:
        self._total, self._each = total, each
        self._lock, self._taken = threading.Lock(), Counter[str]()
        self._request: ContextVar[Counter[str]] = ContextVar("request")

    @contextmanager
    def request(self) -> Iterator[None]:
        """Release on exit the bytes that were taken for this request, also in threads."""
        taken = Counter[str]()
        self._request.set(taken)
        try:
            yield
        finally:
            if taken:
                with self._lock:
                    self._taken -= taken

    def take(self, size: int) -> None:
        """Reserve bytes before they are allocated. Raises TooManyRequests above the client's limit, BudgetExceeded if this alone is above it, ServerBusy above the total."""
        name = client.get()
        if size > self._each:
            raise BudgetExceeded(
                f"This takes {size / 1e6:,.0f} MB of the server's memory at once, and one client may have {self._each / 1e6:,.0f} MB. Request less, or export the analysis.",
                limit=self._each,
                actual=size,
            )
        with self._lock:
            if self._taken[name] + size > self._each:
                raise TooManyRequests(
                    "Your other requests or their responses are still in transfer. Wait for them, then try again."
                )
            if self._taken.total() + size > self._total:
                raise ServerBusy("The server is busy with too many large requests. Try again in a few seconds.")
            self._taken[name] += size
            self._request.get()[name] += size


class Limiters:
    """The limits of a server, one per kind of expensive request. Other requests share the event loop's default threads."""

    def __init__(self) -> None:
        # Reads of finished results, from the disk or the store.
        self.results = Limiter(total=16, each=8)
        # Each waits for the identity provider, before anyone is known.
        self.sign_ins = Limiter(total=16, each=16, waiting=64)
        # Requests for analyses are checked and tokenised before they are queued.
        self.submissions = Limiter(total=8, each=4)
        # Each takes up to HEADSCOPE_DATASET_BYTES on disk during the upload.
        self.uploads = Limiter(total=8, each=2, waiting=4)
        # Each takes up to HEADSCOPE_DATASET_MEMORY_BYTES, and twice HEADSCOPE_DATASET_BYTES on disk.
        self.datasets = Limiter(total=3, each=2, waiting=4)
        # Each holds a head map in memory until the last byte is sent.
        self.exports = Limiter(total=16, each=4, waiting=4)
        # Each holds some head maps of two analyses in memory.
        self.comparisons = Limiter(total=2, each=1)
        # Request bodies that are received completely before their route runs.
        self.bodies = MemoryLimiter(total=128 * MIB, each=64 * MIB)
        # Head maps and other arrays until the response is sent; at least the size of the largest response.
        self.memory = MemoryLimiter(total=256 * MIB, each=160 * MIB)
        # Each starts a browser, which takes about 300 MB.
        self.pictures = Limiter(total=1, each=1, waiting=8)
