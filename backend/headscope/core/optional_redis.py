"""A Redis that may be away: calls time out early, and after a failure they are skipped for a while."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, TypeVar

from .lazy import redis

logger = logging.getLogger("headscope")
T = TypeVar("T")
# Calls are skipped for this long (s) after a failure.
PAUSE_SECONDS = 5.0


class OptionalRedis:
    """A client of the Redis at `url` with a timeout of `seconds`. Safe for threads, and for processes forked later."""

    def __init__(self, url: str, seconds: float) -> None:
        lost = redis.exceptions.ConnectionError
        # One retry for a connection that Redis has closed; a timeout is not retried.
        retry = redis.retry.Retry(redis.backoff.NoBackoff(), 1, supported_errors=(lost,))
        self._redis = redis.Redis.from_url(url, socket_timeout=seconds, socket_connect_timeout=seconds, retry=retry)
        self._retry_at = 0.0

    def call(self, command: Callable[[Any], T]) -> T | None:
        """Return the result of a command; None if Redis is not available."""
        if time.monotonic() < self._retry_at:
            return None
        try:
            return command(self._redis)
        except redis.exceptions.RedisError as error:
            self._retry_at = time.monotonic() + PAUSE_SECONDS
            logger.warning("Redis did not answer, pausing for %g s: %s", PAUSE_SECONDS, type(error).__name__)
            return None
