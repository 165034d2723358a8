"""A worker of a cluster: a name, and one process at a time that claims jobs from the job database."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from celery.exceptions import SoftTimeLimitExceeded

from ..errors import DatabaseUnavailable
from . import metrics
from .engine import Engine, Problems, run_jobs
from .job import End, Job, Worker, WorkerState, outcome, timed_out
from .job_database import JobDatabase
from .outbox import BROKER_AWAY, Outbox
from .progress import DatabaseReporter
from .sending import queues_of

logger = logging.getLogger("headscope.jobs")

# Interval of heartbeats, in s.
HEARTBEAT_SECONDS = 3.0
# A worker that receives no message for this long (s), although some are queued, is disconnected.
SILENCE_SECONDS = 20.0
# Most passes of one task, and how long (s) it goes on with another one, before it makes room for the tasks of others.
PASSES, TURN_SECONDS = 4, 1.0


class WorkerProcess:
    """A worker. It is constructed in the parent and inherited by its children, of which one runs at a time; a child begins with `open`.

    A child settles the jobs that its predecessor was running when it died.
    """

    def __init__(
        self,
        worker: Worker,
        database: Callable[[], JobDatabase],
        engine: Callable[[], Engine],
        outbox: Callable[[JobDatabase], Outbox],
        discard_ended: Callable[[JobDatabase], None],
        *,
        job_seconds: float,
        prewarm: bool,
    ) -> None:
        self.worker, self._open_database, self._make_engine = worker, database, engine
        self._make_outbox, self._discard_ended = outbox, discard_ended
        self._job_seconds, self._prewarm = job_seconds, prewarm
        self._database = database()
        self.queues = queues_of(WorkerState(worker, 0.0))
        self._outbox = outbox(self._database)
        self._reporter = DatabaseReporter(self._database)
        self._counts = metrics.relay().sending
        self._engine: Engine | None = None
        self._settled = False
        self._task = ""
        self._jobs: dict[int, Job] = {}  # by run: claimed, and its end is not written yet
        self._ends: dict[int, End] = {}  # by run, to be written with the next claim
        self._writing = threading.Lock()
        self._late = False  # whether the time limit interrupted this task
        self._claim_lost = False  # whether the response to a claim was lost
        self._idle_since, self._missed = float("inf"), 0  # infinite until it is ready

    def open(self) -> None:
        """Start a new child: settle the jobs of its predecessor, start the heartbeat, and load the engine."""
        # If all processes are stopped at once, the parent stops this one.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        metrics.send_to(self._counts)
        self._database = self._open_database()
        self._outbox = self._make_outbox(self._database)
        self._reporter = DatabaseReporter(self._database)
        with suppress(DatabaseUnavailable):
            self._take_over()
        threading.Thread(target=self._send_heartbeats, name="heartbeat", daemon=True).start()
        try:
            self._engine = self._make_engine()
        except Exception:
            logger.exception("cannot start the engine, retrying")
            time.sleep(HEARTBEAT_SECONDS)
            os._exit(1)
        if self._prewarm:
            try:
                self._engine.prewarm()
            except Exception:  # the first job that needs the model reports the error
                logger.exception("cannot load the default model")
        self._idle_since = time.monotonic()

    def busy(self) -> bool:
        """Return whether a job is running here. For the parent."""
        return bool(self._database.expired(name=self.worker.name))

    def close(self) -> None:
        """Requeue running jobs and deregister the worker. For the parent, after the child has ended."""
        for job in self._database.expired(name=self.worker.name):
            self._database.requeue(job.id, job.run, "The worker was stopped; another one starts again.", counted=False)
        self._database.deregister(self.worker.name)

    def work(self, task: str) -> None:
        """Claim and run the jobs of a task that are still queued, PASSES at most. Raises DatabaseUnavailable."""
        self._idle_since, self._late = float("inf"), False
        signal.signal(signal.SIGUSR1, self._interrupt)
        try:
            self._work(task)
        finally:
            self._idle_since = time.monotonic()

    def _interrupt(self, *_: object) -> None:
        """Raise SoftTimeLimitExceeded at Celery's soft limit, and remember it: the interrupted code may report another error."""
        self._late = True
        raise SoftTimeLimitExceeded

    def _work(self, task: str) -> None:
        if self._engine is None:
            raise RuntimeError("open() must be called first")
        self._task = task
        until = time.monotonic() + TURN_SECONDS
        for _ in range(PASSES):
            self._take_over()
            self._requeue_unknown()
            jobs = self._claim()
            if not jobs:
                break
            try:
                self._run(jobs, self._engine)
            finally:  # a time limit may interrupt anything: jobs without an end here are left to be settled
                for job in jobs:
                    if job.run not in self._ends:
                        self._jobs.pop(job.run, None)
            if self._late or time.monotonic() > until:
                self._database.unsend([task])
                break
        else:
            self._database.unsend([task])
        self._write_ends()
        with suppress(*BROKER_AWAY):
            self._outbox.refill(self.queues)

    def _run(self, jobs: list[Job], engine: Engine) -> None:
        late = timed_out(self._job_seconds).problem()
        problems: Problems
        try:
            self._reporter.begin({job.id: job.run for job in jobs})
            problems = run_jobs(engine, jobs, self._reporter, (SoftTimeLimitExceeded,))
        except SoftTimeLimitExceeded:
            problems = dict.fromkeys((job.id for job in jobs), late)
        if self._late:  # whatever the interrupted code reported
            problems = {id_: problem and late for id_, problem in problems.items()}
        self._ends |= {job.run: outcome(job, problems[job.id]) for job in jobs}

    def _claim(self) -> list[Job]:
        with self._writing:
            self._claim_lost = True  # until the response is received
            jobs = self._database.claim(self._current(), list(self._ends.values()), task=self._task)
            self._note_written()
            self._jobs |= {job.run: job for job in jobs}
            self._claim_lost = False
        return jobs

    def _requeue_unknown(self) -> None:
        """Requeue jobs that this worker claimed without knowing, because the response was lost. The attempt does not count."""
        with self._writing:
            for job in self._database.expired(name=self.worker.name) if self._claim_lost else ():
                if job.run not in self._jobs:
                    self._database.requeue(job.id, job.run, "Queued again: its worker was disconnected.", counted=False)
            self._claim_lost = False

    def _write_ends(self) -> None:
        """Write the ends of runs to the job database. Failed writes are retried with the next heartbeat."""
        with self._writing:
            if self._ends:
                self._database.end(list(self._ends.values()))
                self._note_written()

    def _note_written(self) -> None:
        for run in self._ends:
            del self._jobs[run]
        self._ends.clear()

    def _take_over(self) -> None:
        """Settle, once, the jobs of an earlier child of this name."""
        if not self._settled:
            self._database.settle(self._database.expired(name=self.worker.name), self._job_seconds)
            self._database.deregister(self.worker.name)
            self._settled = True

    def _current(self) -> Worker:
        """Return the current state of the worker."""
        engine = self._engine
        if engine is None:
            return replace(self.worker, pid=os.getpid())
        return replace(self.worker, task=self._task, pid=os.getpid(), warm=engine.warm, most_tokens=engine.most_tokens)

    def _send_heartbeats(self) -> None:
        """Send heartbeats as long as this process runs, which Celery ends with its parent."""
        while True:
            try:
                self._write_ends()
                self._requeue_unknown()
                self._database.heartbeat(self._current(), list(self._jobs))
                self._discard_ended(self._database)
                self._restart_if_disconnected()
            except DatabaseUnavailable:
                pass
            except Exception:
                logger.exception("heartbeat")
            time.sleep(HEARTBEAT_SECONDS)

    def _restart_if_disconnected(self) -> None:
        """Kill the parent if it has received no message for long although some are queued; it is restarted."""
        idle = time.monotonic() - self._idle_since > SILENCE_SECONDS
        with suppress(*BROKER_AWAY):
            self._missed = self._missed + 1 if idle and self._outbox.length(self.queues) else 0
        if self._missed > 1:  # at two heartbeats: messages of the first may be in transit
            logger.error("no message received although some are queued: this worker exits to be restarted")
            os.kill(os.getppid(), signal.SIGKILL)  # this process ends with it
