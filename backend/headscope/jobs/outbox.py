"""The broker's side of sending tasks. Servers and workers both send; the database decides what."""

from __future__ import annotations

import json
import time
from collections.abc import Collection

import redis
from celery import Celery
from kombu.exceptions import OperationalError

from .job_database import JobDatabase
from .queries import AHEAD
from .sending import queues_of

# The name of the Celery task.
TASK = "headscope.run"
# Errors of a broker that is away, or accepts no messages.
BROKER_AWAY = (OperationalError, redis.RedisError, OSError)
# Priorities of single requests and batches in kombu's Redis, which has a list for each of four steps.
PRIORITIES, STEPS = (0, 6), ("", "\x06\x163", "\x06\x166", "\x06\x169")
# A task that was sent is lost once it has been absent from the broker, and not begun, for this long (s).
LOST_SECONDS = 3.0


class Outbox:
    """Sends the tasks of a database through a broker. Methods raise DatabaseUnavailable, and BROKER_AWAY."""

    def __init__(self, database: JobDatabase, app: Celery, url: str) -> None:
        self._database, self._app = database, app
        self._broker = redis.Redis.from_url(url, socket_connect_timeout=2, socket_timeout=5, decode_responses=True)
        self._missing: dict[str, float] = {}  # tasks that do not wait at the broker and have not begun, and since when

    def send(self) -> None:
        """Send the next tasks, if the broker is there. Those that it does not accept are recovered."""
        self._broker.ping()
        for message in self._database.choose(self._database.workers()):
            priority = PRIORITIES[min(message.priority, 1)]
            options = {"task_id": message.task, "queue": message.queue, "priority": priority}
            self._app.send_task(TASK, (message.ids,), ignore_result=True, retry=False, **options)

    def refill(self, queues: Collection[str]) -> None:
        """Send the next tasks if these queues run short."""
        if self.length(queues) <= AHEAD // 2:
            self.send()

    def recover(self) -> None:
        """Have tasks sent again that for LOST_SECONDS have neither waited in a queue which a worker serves nor begun: the broker has lost them, or their worker has died."""
        sent = self._database.unstarted()
        queues = {name for worker in (self._database.workers() if sent else ()) for name in queues_of(worker)}
        missing, ticks = sent.keys() - self._queued(queues.intersection(sent.values())), time.monotonic()
        self._missing = {task: self._missing.get(task, ticks) for task in missing}
        if lost := [task for task, since in self._missing.items() if ticks - since > LOST_SECONDS]:
            self._database.unsend(lost)

    def length(self, queues: Collection[str]) -> int:
        """Return the number of messages in queues."""
        pipeline = self._broker.pipeline(transaction=False)
        for key in _keys(queues):
            pipeline.llen(key)
        return sum(pipeline.execute())

    def _queued(self, queues: Collection[str]) -> set[str]:
        """Return the ids of the tasks that wait in queues."""
        messages = (json.loads(text) for key in _keys(queues) for text in self._broker.lrange(key, 0, -1))
        return {str(message["headers"].get("id")) for message in messages}


def _keys(queues: Collection[str]) -> list[str]:
    return [queue + step for queue in queues for step in STEPS]
