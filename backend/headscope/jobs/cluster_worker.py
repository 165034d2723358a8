"""The process that runs the jobs of a worker of a cluster, task after task."""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress

from ..errors import HeadscopeError
from . import metrics
from .job import Worker
from .job_database import JobDatabase
from .outbox import BROKER_AWAY, Outbox
from .sending import queues_of
from .worker_process import Engine, WorkerProcess

logger = logging.getLogger("headscope.jobs")

# How often a new process looks whether the database is available, in s.
RETRY_SECONDS = 1.0
# A worker that receives no message for this long (s), although some have been queued for QUEUED_SECONDS, is disconnected: to reconnect takes up to 3 s.
SILENCE_SECONDS, QUEUED_SECONDS = 20.0, 6.0
# Most passes of one task, and how long (s) it goes on with another one, before it makes room for the tasks of others.
PASSES, TURN_SECONDS = 4, 1.0


class ClusterWorkerProcess(WorkerProcess):
    """A child of a Celery worker, constructed in that child. `discard_ended` removes what lost runs left. `limits`: of WorkerProcess."""

    def __init__(
        self,
        worker: Worker,
        database: JobDatabase,
        make_engine: Callable[[], Engine],
        outbox: Outbox,
        discard_ended: Callable[[], None],
        **limits: float,
    ) -> None:
        super().__init__(worker, database, make_engine, **limits)
        self._outbox, self._discard_ended = outbox, discard_ended
        self._queues = queues_of(worker)
        self._idle_since = float("inf")  # until it is ready
        self._missing_since = float("inf")  # when messages were queued first, although it was idle for long

    def begin(self, *, prewarm: bool) -> None:
        """Settle the jobs of an earlier child of this worker, once the database is available, and start; with `prewarm` load models first."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # if all processes are stopped at once, the parent stops this one
        metrics.send_to(metrics.relay().sending)
        while True:
            try:
                self._database.take_over(self._worker.name, self._job_seconds)
                break
            except HeadscopeError:
                time.sleep(RETRY_SECONDS)
        self.start()
        while prewarm and self.prewarm():
            pass
        self._idle_since = time.monotonic()

    def work(self, task: str) -> None:
        """Claim and run the jobs of a task that are still queued, PASSES at most. Raises DatabaseUnavailable; the rest of the task is sent again then."""
        self._idle_since = float("inf")
        try:
            self._work(task)
        finally:
            self._idle_since = time.monotonic()

    def _work(self, task: str) -> None:
        passes, until = 0, time.monotonic() + TURN_SECONDS
        while self.run_next(task=task):
            passes += 1
            if self._late or passes == PASSES or time.monotonic() > until:
                self._database.unsend([task])
                break
        self._write_ends()
        with suppress(*BROKER_AWAY):
            self._outbox.refill(self._queues)

    def _after_heartbeat(self) -> None:
        """Remove what lost runs left. Kill the parent if it has received no message for long although some are queued; it is restarted."""
        self._discard_ended()
        now, missing = time.monotonic(), False
        if now - self._idle_since > SILENCE_SECONDS:
            with suppress(*BROKER_AWAY):
                missing = self._outbox.length(self._queues) > 0
        self._missing_since = min(self._missing_since, now) if missing else float("inf")
        if now - self._missing_since > QUEUED_SECONDS:
            logger.error("no message received although some are queued: this worker exits to be restarted")
            os.kill(os.getppid(), signal.SIGKILL)  # this process ends with it
