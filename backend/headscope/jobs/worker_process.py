"""The process that runs jobs, in both deployments, and the interface of the engine in it."""

from __future__ import annotations

import logging
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from typing import Any, Protocol

from .. import logs
from ..errors import HeadscopeError
from . import tracing
from .job import End, Job, Problem, Run, Worker, outcome, timed_out
from .job_database import JobDatabase
from .progress import ProgressReporter
from .tracing import Problems

logger = logging.getLogger("headscope.jobs")

# Interval of heartbeats, in s. An idle worker whose state does not change sends only one in IDLE_HEARTBEATS.
HEARTBEAT_SECONDS, IDLE_HEARTBEATS = 1.0, 5
# A process that is still busy this long (s) after the time limit of a job ends.
GRACE_SECONDS = 10.0


class Engine(Protocol):
    """Runs jobs in a process of its own."""

    @property
    def warm(self) -> frozenset[str]:
        """Digests of the models in memory."""

    @property
    def most_tokens(self) -> int:
        """Most tokens of several inputs in one forward pass; 0 for one input at a time."""

    def prewarm(self) -> bool:
        """Load the next model before a job asks for it; return False if none is left. It is not tried again after an error."""

    def run(self, jobs: Sequence[Job], reporter: ProgressReporter) -> Problems:
        """Run jobs that share a forward pass. Return by id the problem as a document, or None if the result is stored. An exception is an error of the engine itself."""


class _OutOfTime(Exception):
    """A job has reached its time limit."""


class WorkerProcess:
    """Claims jobs from the database, runs them with an engine, and writes their ends. It reports their progress, and sends heartbeats.

    Jobs run in the main thread, where a timer interrupts them after `job_seconds`. If this does not end them, or if none of them has stopped `cancel_seconds`
    after a heartbeat found all of them cancelled, the process ends.
    """

    def __init__(
        self,
        worker: Worker,
        database: JobDatabase,
        make_engine: Callable[[], Engine],
        *,
        job_seconds: float,
        cancel_seconds: float,
    ) -> None:
        self._worker, self._database = replace(worker, pid=os.getpid()), database
        self._make_engine = make_engine
        self._job_seconds, self._cancel_seconds = job_seconds, cancel_seconds
        self._reporter = ProgressReporter(database)
        self._engine: Engine | None = None
        self._running: list[Run] = []
        self._since = 0.0  # when they began
        self._stopping: dict[Run, float] = {}  # those that are cancelled, and since when this is known
        self._ends: list[End] = []  # of earlier runs, to be written with the next claim
        self._writing = threading.Lock()
        self._late = False  # whether the time limit has interrupted the last jobs
        self._reported: Worker | None = None  # by the last heartbeat

    def start(self) -> None:
        """Send heartbeats from now on, and create the engine. Ignores Ctrl-C: the parent process ends this one."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        threading.Thread(target=self._send_heartbeats, name="heartbeat", daemon=True).start()
        try:
            self._engine = self._make_engine()
        except Exception:
            logger.exception("cannot start the engine, retrying")
            time.sleep(HEARTBEAT_SECONDS)
            os._exit(1)

    def prewarm(self) -> bool:
        """Load the next model that the engine loads before a job asks for it; return False if none is left."""
        try:
            return self._engine is not None and self._engine.prewarm()
        # The first job that needs the model reports the error.
        except HeadscopeError as error:
            logger.error("cannot load a model in advance: %s", error.detail)
        except Exception:
            logger.exception("cannot load a model in advance")
        return True

    def run_next(self, **which: Any) -> bool:
        """Run the next jobs that `which` selects, arguments of JobDatabase.claim; return False if there are none, and all ends are written."""
        with self._writing:
            ends = list(self._ends)
            jobs = self._database.claim(self._current(), ends, **which)
            del self._ends[: len(ends)]
            self._since, self._running = time.monotonic(), [Run(job.id, job.run) for job in jobs]
        try:
            problems = dict[str, Problem | None]()
            with tracing.running(jobs, self._worker.name, problems):
                problems |= self._run(jobs) if jobs else {}
            if self._late and len(jobs) > 1:
                for job in jobs:
                    self._database.requeue(job.id, job.run, "The jobs of one pass took too long; trying again, alone.")
            else:
                self._ends += [outcome(job, problems[job.id]) for job in jobs]
        finally:
            self._running = []
        return bool(jobs)

    def _run(self, jobs: list[Job]) -> Problems:
        """Return the problem of each job. An error of the engine itself, or the time limit, is that of all."""
        if self._engine is None:
            raise RuntimeError("start() must be called first")
        try:
            with self._time_limit():
                problems = self._engine.run(jobs, self._reporter)
        except Exception:
            if not self._late:
                logger.exception("job %s", ", ".join(job.id for job in jobs))
            failed = HeadscopeError("The worker failed on this job; its log says why.").problem()
            problems = dict.fromkeys((job.id for job in jobs), failed)
        if not self._late:
            return problems
        for job in (one for one in jobs if problems[one.id]):  # others ended before it
            with logs.bound(job=job.id, request_id=job.request_id):
                logger.warning("%s stopped at its time limit", job.kind)
        late = timed_out(self._job_seconds, jobs[0].kind).problem()  # jobs of one task are of one kind
        return {id_: problem and late for id_, problem in problems.items()}

    @contextmanager
    def _time_limit(self) -> Iterator[None]:
        """Raise _OutOfTime at the time limit, and note it: the interrupted code may report another error."""

        def interrupt(*_: object) -> None:
            self._late = True
            raise _OutOfTime

        self._late = False
        signal.signal(signal.SIGALRM, interrupt)
        signal.setitimer(signal.ITIMER_REAL, self._job_seconds if math.isfinite(self._job_seconds) else 0)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _current(self) -> Worker:
        """Return the current state of the worker."""
        engine = self._engine
        return replace(self._worker, warm=engine.warm, most_tokens=engine.most_tokens) if engine else self._worker

    def _write_ends(self) -> None:
        """Write the ends of runs that no claim has written. Failed writes are retried with the next heartbeat."""
        with self._writing:
            if ends := list(self._ends):
                self._database.end(ends)
                del self._ends[: len(ends)]

    def _send_heartbeats(self) -> None:
        for number in count():
            try:
                self._write_ends()
                self._send_heartbeat(due=number % IDLE_HEARTBEATS == 0)
                self._after_heartbeat()
            except HeadscopeError:  # the next heartbeat retries
                pass
            except Exception:
                logger.exception("heartbeat")
            self._end_overdue()
            time.sleep(HEARTBEAT_SECONDS)

    def _send_heartbeat(self, *, due: bool) -> None:
        with self._writing:  # a claim is known before or after
            worker, held = self._current(), [*self._running, *(Run(end.id, end.run) for end in self._ends)]
            if due or held or worker != self._reported:
                self._note_stopping(self._database.heartbeat(worker, held))
                self._reported = worker

    def _note_stopping(self, runs: set[Run]) -> None:
        self._stopping = {run: self._stopping.get(run, time.monotonic()) for run in runs}

    def _end_overdue(self) -> None:
        """End this process, which is replaced, if its jobs have not ended long after their time limit, or after all of them were cancelled."""
        now, running = time.monotonic(), self._running
        cancelled = all(now - self._stopping.get(run, now) > self._cancel_seconds for run in running)
        if running and (cancelled or now - self._since > self._job_seconds + GRACE_SECONDS):
            logger.error("%s does not stop: this process exits to be replaced", running[0].id)
            os._exit(1)

    def _after_heartbeat(self) -> None:
        """Do what a deployment does at every heartbeat."""
