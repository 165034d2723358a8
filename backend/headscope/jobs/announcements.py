"""Announcements of changed jobs, through Redis: servers read the database at once. Without them they notice a change a second later."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any, NoReturn

from ..core.lazy import redis
from ..core.optional_redis import OptionalRedis

CHANNEL = "headscope:jobs"
# An announcement times out after this long (s), and a listener that lost its connection, or is refused, tries again after RETRY_SECONDS.
TIMEOUT_SECONDS, RETRY_SECONDS = 0.2, 5.0
# Announcements that arrive within this time (s) count as one.
GATHER_SECONDS = 0.05

Announce = Callable[[Collection[str]], None]


def announcer(url: str) -> Announce:
    """Return the `announce` of a worker's job database."""
    optional = OptionalRedis(url, TIMEOUT_SECONDS)

    def announce(ids: Collection[str]) -> None:
        optional.call(lambda redis: redis.publish(CHANNEL, " ".join(ids)))

    return announce


def listen(url: str, announce: Announce, poke: Callable[[], None]) -> None:
    """Start a thread that calls `announce` with what workers announce, and `poke` whenever it has subscribed: earlier announcements are lost."""
    threading.Thread(target=_listen, args=(url, announce, poke), name="announcements", daemon=True).start()


def _listen(url: str, announce: Announce, poke: Callable[[], None]) -> None:
    client: Any = redis.Redis.from_url(url, decode_responses=True, health_check_interval=10)
    while True:
        with suppress(redis.exceptions.RedisError), client.pubsub() as channel:
            channel.subscribe(CHANNEL)
            _pass_on(channel, announce, poke)
        time.sleep(RETRY_SECONDS)


def _pass_on(channel: Any, announce: Announce, poke: Callable[[], None]) -> NoReturn:
    while True:
        ids, message = set(), channel.get_message(timeout=RETRY_SECONDS)
        while message is not None:
            if message["type"] == "message":
                ids.update(message["data"].split())
            else:  # subscribed, perhaps again: the client reconnects by itself
                poke()
            message = channel.get_message()
        announce(ids)
        time.sleep(GATHER_SECONDS)
