"""The server's side of the cluster home: sees to it that workers hear of what waits, and that nothing stays with a worker that is lost."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

import redis
from kombu.exceptions import OperationalError

from ..errors import BrokerUnavailable
from .celery import TASK, application, class_of, queue
from .job import JobDatabase, WorkerState, settle

logger = logging.getLogger("headscope.jobs")

TICK_SECONDS = 1.0
# A worker that has not been heard of for this long (s) is lost.
STALE_SECONDS = 15.0
# Ended jobs are dropped this often, in s.
TRIM_SECONDS = 60.0
# Messages sent ahead to one queue at most: no tick needs more.
AHEAD = 1000
AWAY = (BrokerUnavailable, OperationalError, redis.RedisError, OSError)


class Cluster:
    """One thread that looks at the record each second, and at once when woken. Any number of servers may do so side by side: all they do may be done twice."""

    def __init__(
        self,
        database: JobDatabase,
        url: str,
        *,
        job_seconds: float,
        cancel_seconds: float,
        discard_ended: Callable[[], None] = lambda: None,
    ) -> None:
        self._database, self._app = database, application(url, job_seconds=job_seconds)
        self._discard_ended = discard_ended
        self._broker = redis.Redis.from_url(url, socket_connect_timeout=2, socket_timeout=5)
        self._job_seconds, self._cancel_seconds = job_seconds, cancel_seconds
        self._wake, self._stopping = threading.Event(), threading.Event()
        self._reached: float | None = None  # since when the broker answers; None while it does not
        self._looked = self._trimmed = 0.0
        self._classes: frozenset[str] = frozenset()
        self._thread = threading.Thread(target=self._tend, name="cluster", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def wake(self) -> None:
        """There may be something to do."""
        self._wake.set()

    def stop(self) -> None:
        """Stop; workers go on."""
        self._stopping.set()
        self._wake.set()
        self._thread.join(timeout=10)

    def alive(self) -> bool:
        """Whether jobs can be taken: the broker answers."""
        return self._thread.is_alive() and self._reached is not None

    def depths(self) -> dict[str, int]:
        """How many messages wait in the queue of each class of device of which this server has heard a worker. Raises BrokerUnavailable."""
        try:
            return {name: int(self._broker.llen(queue(name))) for name in sorted(self._classes)}
        except redis.RedisError as error:
            raise BrokerUnavailable("The server can't reach its Redis now. Try again in a few seconds.") from error

    def _tend(self) -> None:
        while not self._stopping.is_set():
            self._wake.clear()
            try:
                states = self._database.workers()
                listed = {class_of(state.worker.device) for state in states}
                self._classes |= listed
                self._publish({queue(name) for name in listed})
                if time.monotonic() - self._looked >= TICK_SECONDS:
                    self._looked = time.monotonic()
                    self._reconcile({state.worker.name: state for state in states})
                    self._discard_ended()
                self._found()
            except AWAY:
                self._missed()
            except Exception:  # this thread must outlive anything
                logger.exception("cluster")
            self._wake.wait(TICK_SECONDS)

    def _found(self) -> None:
        if self._reached is None:
            self._reached = time.monotonic()
            logger.info("the broker answers")

    def _missed(self) -> None:
        if self._reached is not None:
            logger.warning("the broker can't be reached; what waits goes on waiting")
        self._reached = None

    def _publish(self, queues: set[str]) -> None:
        """As many messages in each queue as jobs wait."""
        waiting = min(self._database.waiting(), AHEAD) if queues else 0
        for name in queues if waiting else ():
            missing = waiting - int(self._broker.llen(name))
            for _ in range(missing):
                self._app.send_task(TASK, queue=name, ignore_result=True, retry=False)

    def _reconcile(self, workers: dict[str, WorkerState]) -> None:
        """Free workers from runs that nobody wants any more; give jobs of lost workers to others."""
        for run in self._database.unreleased(self._cancel_seconds):
            self._kill(workers.get(run.worker))
            self._database.finish(run.id, run.run, "cancelled")  # let go of, in its place
        if self._reached is not None and time.monotonic() - self._reached > STALE_SECONDS:
            lost = self._database.expired(STALE_SECONDS)
            settle(self._database, lost, self._job_seconds)
            silent = self._database.now() - STALE_SECONDS
            for name in {job.worker for job in lost}:
                worker = workers.get(name)
                if worker and worker.seen < silent:  # or else it lives, and only never heard that it was given the job
                    self._kill(worker)
        if time.monotonic() - self._trimmed > TRIM_SECONDS:
            self._trimmed = time.monotonic()
            self._database.trim()

    def _kill(self, worker: WorkerState | None) -> None:
        """End the process that runs a worker's task; its parent starts another."""
        if worker and worker.worker.task:
            self._app.control.revoke(worker.worker.task, terminate=True, signal="SIGKILL")
