"""A cache of recent responses in this process."""

from __future__ import annotations

import threading
from collections.abc import Hashable
from typing import Any

from cachetools import LRUCache

MAX_BYTES = 32 * 1024 * 1024


class ResponseCache:
    """A thread-safe LRU cache, bounded by the total size of its entries. A key names everything that the response depends on."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._lock = threading.Lock()
        self._entries: LRUCache[Hashable, tuple[Any, int]] = LRUCache(max_bytes, getsizeof=lambda entry: entry[1])

    def get(self, key: Hashable) -> Any | None:
        """Return the cached response, or None."""
        with self._lock:
            return self._entries.get(key, (None, 0))[0]

    def put(self, key: Hashable, response: Any, size: int) -> None:
        """Cache a response of `size` bytes, unless it is larger than the cache."""
        with self._lock:
            if size <= self._entries.maxsize:
                self._entries[key] = response, size
