"""Memory that the bodies of requests take: bounded in total, and per visitor so that one of them cannot take all of it."""

from __future__ import annotations

import threading
from collections import Counter
from types import TracebackType
from typing import Self

from ...errors import ServerBusy, TooManyRequests

MIB = 1024 * 1024


class BodyMemory:
    """Bytes that requests hold now. It may be used from any thread."""

    def __init__(self, total: int, each: int) -> None:
        self._total, self._each = total, each
        self._held: Counter[str] = Counter()
        self._lock = threading.Lock()

    def take(self, visitor: str, count: int) -> None:
        """Count bytes for a visitor. Raises TooManyRequests above the visitor's share, ServerBusy above the total."""
        with self._lock:
            if self._held[visitor] + count > self._each:
                raise TooManyRequests("Your other requests are still being received. Wait for them first.")
            if self._held.total() + count > self._total:
                raise ServerBusy("The server is receiving too much at once. Try again in a few seconds.")
            self._held[visitor] += count

    def release(self, visitor: str, count: int) -> None:
        """Return bytes that were taken."""
        with self._lock:
            self._held[visitor] -= count
            if not self._held[visitor]:
                del self._held[visitor]


class Reservation:
    """The bytes of one request; released on exit."""

    def __init__(self, memory: BodyMemory, visitor: str) -> None:
        self._memory, self._visitor, self._count = memory, visitor, 0

    def take(self, count: int) -> None:
        """Count more bytes. Raises TooManyRequests or ServerBusy."""
        self._memory.take(self._visitor, count)
        self._count += count

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._memory.release(self._visitor, self._count)
