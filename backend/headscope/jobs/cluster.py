"""The server's side of a cluster: sends tasks to workers."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from ..errors import HeadscopeError
from .celery import application
from .job_database import JobDatabase
from .outbox import BROKER_AWAY, Outbox
from .supervisor import Supervisor


class Cluster(Supervisor):
    """Sends tasks when woken, and looks after all workers. Any number of servers may run one. `options`: of Supervisor."""

    def __init__(self, database: JobDatabase, url: str, *, job_seconds: float, **options: Any) -> None:
        super().__init__(database, job_seconds=job_seconds, **options)
        self._app = application(url, job_seconds=job_seconds)
        self._outbox = Outbox(database, self._app, url)

    def _dispatch(self, *, due: bool) -> None:
        """Send tasks, first what the broker has lost."""
        try:
            if due:
                self._outbox.recover()
            self._outbox.send()
        except BROKER_AWAY as error:
            raise HeadscopeError("The server cannot reach its broker.") from error

    def _kill(self, worker: str) -> None:
        """Revoke the task of a worker, whose parent process kills the one that runs it and starts another."""
        for task in {state.worker.task for state in self._database.workers() if state.worker.name == worker} - {""}:
            with suppress(*BROKER_AWAY):
                self._app.control.revoke(task, terminate=True, signal="SIGKILL")
