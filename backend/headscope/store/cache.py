"""The hot cache: answers to reads of finished analyses, in a Redis that forgets what is least used. Without one, or when it is away, every look is a miss."""

from __future__ import annotations

import hashlib
import threading
from typing import Any

from .link import Link

# Larger answers are read from the store again.
LARGEST = 4 * 1024 * 1024
# A cache that takes longer than this (s) is none.
ANSWER_SECONDS = 0.2
# Nothing stays longer than this (s), even in a Redis that is not told to forget.
KEEP_SECONDS = 24 * 3600


class Cache:
    """Bytes with their media type, by a key that names what they are made of. `hits` and `misses` count the looks of this process."""

    def __init__(self, url: str | None) -> None:
        self._link = Link(url, ANSWER_SECONDS) if url else None
        self._lock = threading.Lock()
        self.hits = self.misses = 0

    def get(self, key: str) -> tuple[str, bytes] | None:
        """Media type and bytes; None if they are not here."""
        if self._link is None:
            return None
        mark = _mark(key)
        found: Any = self._link.ask(lambda redis: redis.get(_name(mark)))
        # An answer meant for somebody else, whatever mixed it up, is no answer.
        hit = found is not None and found.startswith(mark)
        with self._lock:
            self.hits += hit
            self.misses += not hit
        if not hit:
            return None
        media, _, body = found[len(mark) :].partition(b"\n")
        return media.decode(), body

    def put(self, key: str, media: str, body: bytes) -> None:
        """Keep bytes, unless they are too large."""
        if self._link is None or len(body) > LARGEST:
            return
        mark = _mark(key)
        value = b"".join((mark, media.encode(), b"\n", body))
        self._link.ask(lambda redis: redis.set(_name(mark), value, ex=KEEP_SECONDS))


def _mark(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()


def _name(mark: bytes) -> str:
    return f"headscope:hot:{mark.hex()}"
