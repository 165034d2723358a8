"""A cache of responses about finished analyses, in a Redis that evicts the least used. If Redis is missing or away, every lookup is a miss."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Mapping
from typing import Any

from ..core.optional_redis import OptionalRedis

# Larger responses are not cached (bytes).
LARGEST = 4 * 1024 * 1024
# The timeout of a lookup (s).
TIMEOUT_SECONDS = 0.2
# Entries expire after this long (s), even in a Redis without an eviction policy.
EXPIRE_SECONDS = 24 * 3600


class Cache:
    """Bytes with their headers, by a key that identifies their content. `hits` and `misses` count the lookups of this process."""

    def __init__(self, url: str | None) -> None:
        self._redis = OptionalRedis(url, TIMEOUT_SECONDS) if url else None
        self._lock = threading.Lock()
        self.hits = self.misses = 0

    def get(self, key: str) -> tuple[dict[str, str], bytes] | None:
        """Return the headers and the bytes; None on a miss."""
        if self._redis is None:
            return None
        digest = _digest(key)
        found: Any = self._redis.call(lambda redis: redis.get(_name(digest)))
        # A value begins with the digest of its key, so a response for another key is never returned.
        hit = found is not None and found.startswith(digest)
        with self._lock:
            self.hits += hit
            self.misses += not hit
        if not hit:
            return None
        headers, _, body = found[len(digest) :].partition(b"\n")
        return json.loads(headers), body

    def put(self, key: str, headers: Mapping[str, str], body: bytes | memoryview) -> None:
        """Cache bytes, unless they are too large."""
        if self._redis is None or len(body) > LARGEST:
            return
        digest = _digest(key)
        value = b"".join((digest, json.dumps(dict(headers)).encode(), b"\n", body))
        self._redis.call(lambda redis: redis.set(_name(digest), value, ex=EXPIRE_SECONDS))


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()


def _name(digest: bytes) -> str:
    return f"headscope:cache:{digest.hex()}"
