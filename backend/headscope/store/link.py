"""A line to a Redis that may be away: nobody waits for it long, and after a failure nobody asks for a while."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from redis import Redis

logger = logging.getLogger("headscope.store")
T = TypeVar("T")
# After a failure nobody asks for so long (s).
PAUSE = 5.0


class Link:
    """Asks the Redis at `url` with at most `seconds` of patience. Safe for several threads; a forked child makes connections of its own."""

    def __init__(self, url: str, seconds: float) -> None:
        from redis import Redis
        from redis.backoff import NoBackoff
        from redis.exceptions import ConnectionError as Lost
        from redis.retry import Retry

        # One more try for a connection that Redis had closed meanwhile; one that does not answer is not asked twice.
        retry = Retry(NoBackoff(), 1, supported_errors=(Lost,))
        self._redis = Redis.from_url(url, socket_timeout=seconds, socket_connect_timeout=seconds, retry=retry)
        self._again = 0.0

    def ask(self, question: Callable[[Redis], T]) -> T | None:
        """The answer; None while Redis is away."""
        from redis.exceptions import RedisError

        if time.monotonic() < self._again:
            return None
        try:
            return question(self._redis)
        except RedisError as error:
            self._again = time.monotonic() + PAUSE
            logger.warning("Redis did not answer, not asked again for %g s: %s", PAUSE, type(error).__name__)
            return None
