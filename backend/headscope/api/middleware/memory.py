"""The memory that request bodies take, limited in total and per visitor."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ...errors import ServerBusy, TooManyRequests

MIB = 1024 * 1024


class BodyMemory:
    """A counter of the bytes of request bodies, `total` and `each` per visitor. Safe to use from any thread."""

    def __init__(self, total: int, each: int) -> None:
        self._total, self._each = total, each
        self._bytes: Counter[str] = Counter()
        self._lock = threading.Lock()

    @contextmanager
    def reserve(self, visitor: str) -> Iterator[Callable[[int], None]]:
        """Yield a function that reserves bytes for a request of this visitor; they are released on exit.

        The function raises TooManyRequests above the visitor's limit and ServerBusy above the total.
        """
        reserved = 0

        def take(count: int) -> None:
            nonlocal reserved
            self._take(visitor, count)
            reserved += count

        try:
            yield take
        finally:
            with self._lock:
                self._bytes -= Counter({visitor: reserved})

    def _take(self, visitor: str, count: int) -> None:
        with self._lock:
            if self._bytes[visitor] + count > self._each:
                raise TooManyRequests(
                    "Your other requests are still being received. Wait for their responses, then try again."
                )
            if self._bytes.total() + count > self._total:
                raise ServerBusy("The server is receiving too many requests. Try again in a few seconds.")
            self._bytes[visitor] += count
