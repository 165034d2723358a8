"""The server's side of a cluster: sends tasks to workers, and requeues the jobs of lost workers."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from ..errors import HeadscopeError
from .celery import application
from .job import WorkerState
from .job_database import JobDatabase
from .outbox import BROKER_AWAY, Outbox
from .sending import class_of, queues_of

logger = logging.getLogger("headscope.jobs")

TICK_SECONDS = 1.0
# A worker without a heartbeat for this long (s) is lost.
STALE_SECONDS = 15.0
# How often old jobs are removed, in s.
TRIM_SECONDS = 60.0


class Cluster:
    """A thread that looks after the jobs every second, and sends tasks when woken. Any number of servers may run one: all of its actions are idempotent.

    `prepare` is called once the database is available, and raises HeadscopeError if it cannot be used.
    """

    def __init__(
        self,
        database: JobDatabase,
        url: str,
        *,
        job_seconds: float,
        cancel_seconds: float,
        prepare: Callable[[], None] = lambda: None,
        discard_ended: Callable[[], None] = lambda: None,
    ) -> None:
        self._prepare, self._discard_ended = prepare, discard_ended
        self._database, self._app = database, application(url, job_seconds=job_seconds)
        self._outbox = Outbox(database, self._app, url)
        self._job_seconds, self._cancel_seconds = job_seconds, cancel_seconds
        self._wake, self._stopping = threading.Event(), threading.Event()
        self._connected_at: float | None = None  # None while the database is not available
        self._sends, self._told = False, ""
        self._checked = self._trimmed = 0.0
        self._thread = threading.Thread(target=self._run, name="cluster", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wake(self) -> None:
        """Make the thread send tasks now."""
        self._wake.set()

    def stop(self) -> None:
        """Stop the thread; workers continue."""
        self._stopping.set()
        self._wake.set()
        self._thread.join(timeout=10)

    def alive(self) -> bool:
        """Return whether jobs can run: database and broker are available."""
        return self._thread.is_alive() and self._connected_at is not None and self._sends

    def depths(self) -> dict[str, int]:
        """Return the number of messages that wait for workers of each device class. Empty while the broker is away."""
        served: dict[str, set[str]] = {}
        try:
            for state in self._outbox.workers():
                served.setdefault(class_of(state.worker.device), set()).update(queues_of(state))
            return {name: self._outbox.length(queues) for name, queues in sorted(served.items())}
        except BROKER_AWAY:
            return {}

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._wake.clear()
            try:
                if self._connected_at is None:
                    self._prepare()
                due = time.monotonic() - self._checked >= TICK_SECONDS
                self._send(recover=due)
                if due:
                    self._checked = time.monotonic()
                    self._reconcile({state.worker.name: state for state in self._database.workers()})
                    self._discard_ended()
                self._note(None)
            except HeadscopeError as error:
                self._note(error)
            except Exception:  # this thread must survive any error
                logger.exception("cluster")
            self._wake.wait(TICK_SECONDS)

    def _note(self, error: HeadscopeError | None) -> None:
        """Note since when the database is available."""
        if error is None and self._connected_at is None:
            self._connected_at = time.monotonic()
            logger.info("connected to the database")
        elif error is not None:
            if self._connected_at is not None or str(error) != self._told:
                logger.warning("jobs keep waiting: %s", error)
            self._connected_at, self._told = None, str(error)

    def _send(self, *, recover: bool) -> None:
        """Send tasks, first what the broker has lost."""
        try:
            if recover:
                self._outbox.recover()
            self._outbox.send()
            sends = True
        except BROKER_AWAY:
            sends = False
        if sends != self._sends:
            logger.warning("connected to the broker" if sends else "cannot reach the broker; queued jobs keep waiting")
        self._sends = sends

    def _reconcile(self, workers: dict[str, WorkerState]) -> None:
        """Kill workers that do not stop cancelled runs; requeue the jobs of lost workers."""
        for run in self._database.unreleased(self._cancel_seconds):
            self._kill(workers.get(run.worker))
            self._database.finish(run.id, run.run, "cancelled")  # releases the run on behalf of its worker
        if self._connected_at is not None and time.monotonic() - self._connected_at > STALE_SECONDS:
            lost = self._database.expired(STALE_SECONDS)
            self._database.settle(lost, self._job_seconds)
            silent = self._database.now() - STALE_SECONDS
            for name in {job.worker for job in lost}:
                state = workers.get(name)
                if state and state.seen < silent:  # otherwise only the response to its claim was lost
                    self._kill(state)
        if time.monotonic() - self._trimmed > TRIM_SECONDS:
            self._trimmed = time.monotonic()
            self._database.trim()

    def _kill(self, state: WorkerState | None) -> None:
        """Kill the process that runs a worker's task; its parent starts another."""
        if state and state.worker.task:
            self._database.rename(state.worker.task)
            self._app.control.revoke(state.worker.task, terminate=True, signal="SIGKILL")
