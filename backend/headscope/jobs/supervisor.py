"""What a server does for running jobs in either deployment: a thread that kills workers which hang, and requeues what they ran."""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable

from ..errors import HeadscopeError
from .job_database import JobDatabase
from .worker_process import HEARTBEAT_SECONDS, IDLE_HEARTBEATS

logger = logging.getLogger("headscope.jobs")

TICK_SECONDS = 1.0
# A worker without a heartbeat for this long (s) is lost: an idle one has missed three.
STALE_SECONDS = 3 * IDLE_HEARTBEATS * HEARTBEAT_SECONDS
# A gap (s) between two ticks, on the clock of the database, after which workers have STALE_SECONDS again: the machine slept, or its clock was set.
GAP_SECONDS = 5.0
# How often old jobs are removed, in s.
TRIM_SECONDS = 60.0


class Supervisor(ABC):
    """A thread that looks after the jobs of the worker `name` (None: of all workers) every second, and at once when woken. Its actions are idempotent.

    `prepare` is called once the database is available, and raises HeadscopeError if it cannot be used. `discard_ended` removes what lost runs left.
    """

    def __init__(
        self,
        database: JobDatabase,
        name: str | None = None,
        *,
        job_seconds: float,
        prepare: Callable[[], None] = lambda: None,
        discard_ended: Callable[[], None] = lambda: None,
    ) -> None:
        self._database, self._name = database, name
        self._job_seconds = job_seconds
        self._prepare, self._discard_ended = prepare, discard_ended
        self._wake, self._stopping = threading.Event(), threading.Event()
        self._connected, self._problem = False, ""
        self._ticked = self._since = 0.0  # on the clock of the database
        self._next_tick = self._next_trim = 0.0
        self._thread = threading.Thread(target=self._run, name="supervisor", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wake(self) -> None:
        """Have new jobs run now."""
        self._wake.set()

    def stop(self) -> None:
        """Stop the thread."""
        self._stopping.set()
        self._wake.set()
        self._thread.join(timeout=10)

    def alive(self) -> bool:
        """Return whether jobs can run."""
        return self._thread.is_alive() and self._connected

    @abstractmethod
    def _dispatch(self, *, due: bool) -> None:
        """Hand queued jobs to workers. `due`: a second has passed since the last tick."""

    @abstractmethod
    def _kill(self, worker: str) -> None:
        """Kill the process that runs the jobs of a worker; another one is started."""

    def _silent(self) -> list[str]:
        """Return the workers without a heartbeat, of those it looks after."""
        return [worker for worker in self._database.silent(STALE_SECONDS) if self._name in (None, worker)]

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._wake.clear()
            try:
                self._tick()
                self._note("")
            except HeadscopeError as error:
                self._note(error.detail)
            except Exception:  # this thread must survive any error
                logger.exception("supervisor")
            self._wake.wait(TICK_SECONDS)

    def _tick(self) -> None:
        if not self._connected:
            self._prepare()
        due = time.monotonic() >= self._next_tick
        if due:
            self._next_tick = time.monotonic() + TICK_SECONDS
            self._reconcile()
            self._discard_ended()
        self._dispatch(due=due)

    def _note(self, problem: str) -> None:
        """Note and log whether jobs can run."""
        if problem and problem != self._problem:
            logger.warning("jobs keep waiting: %s", problem)
        elif self._problem and not problem:
            logger.info("jobs can run")
        self._connected, self._problem = not problem, problem

    def _reconcile(self) -> None:
        """Kill workers without a heartbeat, and requeue their jobs."""
        ticked, self._ticked = self._ticked, 0.0  # which it stays if the database does not answer
        now = self._database.now()
        self._since = now if now - ticked > GAP_SECONDS else self._since
        for worker in self._silent() if now - self._since > STALE_SECONDS else ():
            self._kill(worker)
            if worker in self._silent():  # it may have been restarted, and run other jobs
                self._database.take_over(worker, self._job_seconds)
        if time.monotonic() > self._next_trim:
            self._next_trim = time.monotonic() + TRIM_SECONDS
            self._database.trim()
        self._ticked = now
