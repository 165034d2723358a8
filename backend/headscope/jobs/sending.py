"""Which tasks are given to the broker of a cluster, in which order, and which have to be given again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any, NamedTuple

import sqlalchemy as sa

from ..database import NOW
from ..database.tables import SENT, jobs, owners
from .job import Worker
from .queries import AHEAD, QUEUED, RUNNING, JobQueries, next_turn

UNSENT = QUEUED & jobs.c.sent.is_(None)
SENT_TASKS = sa.func.count(jobs.c.task.distinct())
FULL = sa.select(jobs.c.owner).where(sa.text(SENT)).group_by(jobs.c.owner).having(SENT_TASKS >= AHEAD)
LENGTHS = sa.select(jobs.c.queue, SENT_TASKS).where(sa.text(SENT)).group_by(jobs.c.queue)
LATEST = sa.select(sa.func.max(owners.c.served) + 1).scalar_subquery()
SERVE = owners.update().where(owners.c.owner == sa.bindparam("name")).values(served=LATEST)


class TaskMessage(NamedTuple):
    """A task to send: its id, its jobs, its queue and its priority (0: single request, 1: batch)."""

    task: str
    ids: list[str]
    queue: str
    priority: int


class TaskSending(JobQueries):
    """What the database knows of the messages at the broker."""

    def choose(self, serving: Collection[Worker]) -> list[TaskMessage]:
        """Mark the next tasks as sent and return them: owner after owner, up to AHEAD that have not started, to queues that these workers serve."""
        unsent = UNSENT & jobs.c.owner.not_in(FULL)
        if all(worker.models for worker in serving):  # other models wait for their workers
            unsent &= jobs.c.model.in_(sorted({model for worker in serving for model in worker.models}))
        if not self._rows(sa.select(jobs.c.id).where(unsent).limit(1)):
            return []
        messages = list[TaskMessage]()
        with self._database.change() as connection:
            self._database.take_turn(connection, "headscope outbox")
            rows: list[Any] = list(connection.execute(LENGTHS))
            lengths = Counter[str](dict(rows))
            while first := connection.execute(next_turn(unsent)).first():
                messages.append(self._mark(connection, first, route(serving, first.model, lengths)))
                self._serve(connection, first.owner)
                lengths[messages[-1].queue] += 1
        return messages

    def _mark(self, connection: sa.Connection, first: Any, queue: str) -> TaskMessage:
        if first.kind == "chunk":
            connection.execute(sa.select(jobs.c.id).where(jobs.c.id == first.batch).with_for_update())
        sent = jobs.update().where(jobs.c.task == first.task, UNSENT).values(sent=NOW, queue=queue)
        ids = connection.execute(sent.returning(jobs.c.id)).scalars()
        return TaskMessage(first.task, list(ids), queue, first.priority)

    def _serve(self, connection: sa.Connection, owner: str) -> None:
        """Note that the owner was served last."""
        connection.execute(SERVE, {"name": owner})

    def unsend(self, tasks: Collection[str]) -> None:
        """Have the queued jobs of these tasks sent again, as other tasks: old messages do nothing, and a revoked task is never run."""
        mine = sa.select(jobs.c.id).where(jobs.c.task.in_(tasks), QUEUED)
        in_order = mine.order_by(jobs.c.kind == "chunk", jobs.c.id).with_for_update()  # studies before chunks
        with self._database.change() as connection:
            self._database.take_turn(connection, "headscope outbox")
            new = {"sent": None, "task": jobs.c.task + "+"}
            connection.execute(jobs.update().where(jobs.c.id.in_(in_order)).values(new))

    def unstarted(self) -> dict[str, str]:
        """Return the tasks that were sent and of which jobs are queued and none is running, with their queues."""
        begun = sa.select(jobs.c.task).where(RUNNING)
        return self._pairs(
            sa.select(jobs.c.task, jobs.c.queue).where(sa.text(SENT), jobs.c.task.not_in(begun)).distinct()
        )

    def depths(self) -> dict[str, int]:
        """Return the number of these tasks for workers of each class of devices."""
        depths = Counter(queue.split(".")[1] for queue in self.unstarted().values())
        return {class_of(worker.device): 0 for worker in self.workers()} | depths


def class_of(device: str) -> str:
    """Return the class of a device: cuda for cuda:1."""
    return device.partition(":")[0]


def queue_name(device: str, model: str = "") -> str:
    """Return the name of the queue of a device's class, or of one model there: headscope.cuda for cuda:1."""
    return ".".join(filter(None, ("headscope", class_of(device), model[:16])))


def queues_of(worker: Worker) -> list[str]:
    """Return the queues that a worker serves."""
    return [queue_name(worker.device, model) for model in sorted(worker.models)] or [queue_name(worker.device)]


def route(serving: Collection[Worker], model: str, lengths: Counter[str]) -> str:
    """Return the queue of a task: of workers for its model, else of those for all; among several the shortest one per worker."""
    names = [queue_name(worker.device, model) for worker in serving if model in worker.models] or [
        queue_name(worker.device) for worker in serving if not worker.models
    ]
    served = Counter(names)
    return min(sorted(served), key=lambda name: lengths[name] / served[name])
