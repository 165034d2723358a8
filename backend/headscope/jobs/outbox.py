"""The broker's side of sending tasks. Servers and workers both send; the database decides what."""

from __future__ import annotations

import json
import time
from collections.abc import Collection
from typing import Any

import redis
from celery import Celery
from kombu.exceptions import OperationalError

from .job import WorkerState
from .job_database import JobDatabase
from .sending import AHEAD, LOST_SECONDS, queues_of

# The name of the Celery task.
TASK = "headscope.run"
# Errors of a broker that is away, or accepts no messages.
BROKER_AWAY = (OperationalError, redis.RedisError, OSError)
# Priorities of single requests and batches in kombu's Redis, which has a list for each of four steps.
PRIORITIES, STEPS = (0, 6), ("", "\x06\x163", "\x06\x166", "\x06\x169")
# How long a list of workers is used (s).
FRESH_SECONDS = 1.0


class Outbox:
    """Sends the tasks of a database through a broker. Methods raise DatabaseUnavailable, and BROKER_AWAY."""

    def __init__(self, database: JobDatabase, app: Celery, url: str) -> None:
        self._database, self._app = database, app
        self._broker = redis.Redis.from_url(url, socket_connect_timeout=2, socket_timeout=5, decode_responses=True)
        self._states: tuple[float, list[WorkerState]] = (float("-inf"), [])
        self._unbegun: dict[str, float] = {}  # tasks that a worker has received and not begun, and since when

    def send(self) -> None:
        """Send the next tasks, if the broker is there."""
        self._broker.ping()
        messages = self._database.choose(self.workers())
        sent = 0
        try:
            for message in messages:
                priority = PRIORITIES[min(message.priority, 1)]
                options = {"task_id": message.task, "queue": message.queue, "priority": priority}
                self._app.send_task(TASK, (message.ids,), ignore_result=True, retry=False, **options)
                sent += 1
        finally:
            if unsent := [message.task for message in messages[sent:]]:
                self._database.unsend(unsent)

    def refill(self, queues: Collection[str]) -> None:
        """Send the next tasks if these queues run short."""
        if self.length(queues) <= AHEAD // 2:
            self.send()

    def recover(self) -> None:
        """Have tasks sent again that the broker has lost, that are in a queue which no worker serves, or whose worker has died before it began them."""
        overdue = self._database.overdue()
        if overdue:
            queues = {name for state in self.workers() for name in queues_of(state.worker)}
            waiting, received = self._queued(queues), self._received()
            lost = {task for task, queue in overdue.items() if queue not in queues or task not in waiting | received}
            lost |= self._find_unbegun((overdue.keys() & received) - waiting)
            if lost:
                self._database.unsend(lost)

    def _find_unbegun(self, tasks: Collection[str]) -> set[str]:
        """Return those of these tasks, which workers have received, that no worker has begun for LOST_SECONDS: the broker would keep them for the time of a job."""
        begun, now = {state.worker.task for state in self.workers()}, time.monotonic()
        self._unbegun = {task: self._unbegun.get(task, now) for task in tasks if task not in begun}
        return {task for task, since in self._unbegun.items() if now - since > LOST_SECONDS}

    def length(self, queues: Collection[str]) -> int:
        """Return the number of messages in queues."""
        pipeline = self._broker.pipeline(transaction=False)
        for key in _keys(queues):
            pipeline.llen(key)
        return sum(pipeline.execute())

    def workers(self) -> list[WorkerState]:
        """Return the workers, as of FRESH_SECONDS ago at most."""
        if time.monotonic() - self._states[0] > FRESH_SECONDS:
            self._states = time.monotonic(), self._database.workers()
        return self._states[1]

    def _queued(self, queues: Collection[str]) -> set[str]:
        """Return the ids of the tasks that wait in queues."""
        return {_task_id(json.loads(message)) for key in _keys(queues) for message in self._broker.lrange(key, 0, -1)}

    def _received(self) -> set[str]:
        """Return the ids of the tasks that workers have received and not acknowledged."""
        return {_task_id(json.loads(message)[0]) for message in self._broker.hvals("unacked")}


def _keys(queues: Collection[str]) -> list[str]:
    return [queue + step for queue in queues for step in STEPS]


def _task_id(message: dict[str, Any]) -> str:
    return str(message["headers"].get("id", ""))
