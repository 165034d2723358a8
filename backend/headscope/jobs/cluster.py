"""The server's side of a cluster: sends tasks to workers."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Any

from .celery import application
from .job_database import JobDatabase
from .outbox import BROKER_AWAY, Outbox
from .sending import class_of, queues_of
from .supervisor import Supervisor

logger = logging.getLogger("headscope.jobs")


class Cluster(Supervisor):
    """Sends tasks when woken, and looks after all workers. Any number of servers may run one. `options`: of Supervisor."""

    def __init__(self, database: JobDatabase, url: str, *, job_seconds: float, **options: Any) -> None:
        super().__init__(database, job_seconds=job_seconds, **options)
        self._app = application(url, job_seconds=job_seconds)
        self._outbox = Outbox(database, self._app, url)
        self._sends = False

    def alive(self) -> bool:
        """Return whether jobs can run: database and broker are available."""
        return super().alive() and self._sends

    def depths(self) -> dict[str, int]:
        """Return the number of messages that wait for workers of each device class. Empty while the broker is away."""
        served: dict[str, set[str]] = {}
        try:
            for state in self._outbox.workers():
                served.setdefault(class_of(state.worker.device), set()).update(queues_of(state.worker))
            return {name: self._outbox.length(queues) for name, queues in sorted(served.items())}
        except BROKER_AWAY:
            return {}

    def _dispatch(self, *, due: bool) -> None:
        """Send tasks, first what the broker has lost."""
        try:
            if due:
                self._outbox.recover()
            self._outbox.send()
            sends = True
        except BROKER_AWAY:
            sends = False
        if sends != self._sends:
            logger.warning("connected to the broker" if sends else "cannot reach the broker; queued jobs keep waiting")
        self._sends = sends

    def _kill(self, worker: str) -> None:
        """Revoke the task of a worker, whose parent process kills the one that runs it and starts another."""
        for task in {state.worker.task for state in self._database.workers() if state.worker.name == worker} - {""}:
            with suppress(*BROKER_AWAY):
                self._app.control.revoke(task, terminate=True, signal="SIGKILL")
