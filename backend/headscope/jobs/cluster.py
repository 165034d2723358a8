"""The server's side of a cluster: sends tasks to workers."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from ..errors import HeadscopeError
from .celery import application, node_name
from .job_database import JobDatabase
from .outbox import BROKER_AWAY, Outbox
from .supervisor import Supervisor

# How long the parent process of a worker may take to answer, in s; one that has ended never does.
ANSWER_SECONDS = 3.0


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
        """Revoke what the parent process of a worker reports as running: it kills the process that runs it and starts another."""
        node, control = node_name(worker), self._app.control
        with suppress(*BROKER_AWAY):
            active = (control.inspect([node], timeout=ANSWER_SECONDS, limit=1).active() or {}).get(node, ())
            for task in active if worker in self._silent() else ():  # an answer takes time
                control.revoke(task["id"], [node], terminate=True, signal="SIGKILL")
