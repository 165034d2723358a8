"""Announcements of changed jobs, through Redis: servers read the database at once. Without them they notice a change a second later."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any

from ..core.lazy import redis
from ..core.optional_redis import OptionalRedis
from ..database import Database
from .job import End, Job, Worker
from .job_database import JobDatabase
from .watch import Watcher

CHANNEL = "headscope:jobs"
# An announcement times out after this long (s), and a lost connection is opened again after RETRY_SECONDS.
TIMEOUT_SECONDS, RETRY_SECONDS = 0.2, 5.0
# Announcements that arrive within this time (s) count as one.
GATHER_SECONDS = 0.05


class AnnouncingJobDatabase(JobDatabase):
    """The job database of a worker, which announces what its runs change. A change of a chunk is one of its study."""

    def __init__(self, database: Database, url: str) -> None:
        super().__init__(database)
        self._redis = OptionalRedis(url, TIMEOUT_SECONDS)

    def claim(self, worker: Worker, ends: Sequence[End] = (), **options: Any) -> list[Job]:
        jobs = super().claim(worker, ends, **options)
        self._announce([*(end.id for end in ends), *(job.id for job in jobs)])
        return jobs

    def progress(self, id_: str, run: int, fraction: float, stage: str, detail: str) -> bool:
        changed = super().progress(id_, run, fraction, stage, detail)
        self._announce([id_])
        return changed

    def end(self, ends: Iterable[End]) -> bool:
        written = list(ends)
        ended = super().end(written)
        self._announce(one.id for one in written)
        return ended

    def _announce(self, ids: Iterable[str]) -> None:
        if names := {id_.partition(".")[0] for id_ in ids}:
            self._redis.call(lambda redis: redis.publish(CHANNEL, " ".join(names)))


def listen(url: str, watcher: Watcher) -> None:
    """Start a thread that pokes a watcher when a job that it waits for is announced."""
    threading.Thread(target=_listen, args=(url, watcher), name="announcements", daemon=True).start()


def _listen(url: str, watcher: Watcher) -> None:
    while True:
        try:
            client: Any = redis.Redis.from_url(url, decode_responses=True, retry=None, health_check_interval=10)
            with client, client.pubsub(ignore_subscribe_messages=True) as channel:
                channel.subscribe(CHANNEL)
                _forward(channel, watcher)
        except redis.RedisError:
            time.sleep(RETRY_SECONDS)


def _forward(channel: Any, watcher: Watcher) -> None:
    while True:
        ids, message = set(), channel.get_message(timeout=RETRY_SECONDS)
        while message is not None:
            ids.update(message["data"].split())
            message = channel.get_message()
        watcher.announce(ids)
        time.sleep(GATHER_SECONDS)
