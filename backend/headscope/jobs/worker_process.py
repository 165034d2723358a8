"""A worker of the cluster: one name, and behind it one process at a time that takes jobs from the record."""

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

from ..errors import BrokerUnavailable, HeadscopeError
from .engine import Engine, Problems
from .job import Job, JobDatabase, Problem, Status, Worker, outcome, settle, timed_out
from .progress import DatabaseReporter

logger = logging.getLogger("headscope.jobs")

# How often a worker says that it lives, in s.
BEAT_SECONDS = 3.0
# A worker to which no message has come for this long (s), while some wait, does not hear them.
DEAF_SECONDS = 20.0


class WorkerProcess:
    """Made in the parent and inherited by each of its children, of which one lives at a time; `open` makes a child the one that works here.

    What a child held when it died is settled by the one that takes its place.
    """

    def __init__(
        self,
        worker: Worker,
        database: Callable[[], JobDatabase],
        engine: Callable[[], Engine],
        messages: Callable[[], int],
        discard_ended: Callable[[JobDatabase], None],
        *,
        job_seconds: float,
        prewarm: bool,
    ) -> None:
        self.worker, self._open_database, self._make_engine, self._messages = worker, database, engine, messages
        self._discard_ended = discard_ended
        self._job_seconds, self._prewarm = job_seconds, prewarm
        self._database = database()
        self._reporter = DatabaseReporter(self._database)
        self._engine: Engine | None = None
        self._settled = False
        self._task = ""
        self._jobs: dict[int, Job] = {}  # by run: claimed, and the record does not know yet how it ended
        self._ends: dict[int, tuple[Status, Problem | None]] = {}
        self._ending, self._claiming = threading.Lock(), threading.Lock()
        self._late = False  # whether the time limit has interrupted this task
        self._misheard = False  # whether the answer to a claim was lost, and with it what this worker was given
        self._idle_since, self._unheard = float("inf"), 0  # until it has begun to listen

    def open(self) -> None:
        """In a new child: take over from the one before, say that this one lives, and load."""
        # Whoever stops all processes at once leaves this one to its parent.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self._database = self._open_database()
        self._reporter = DatabaseReporter(self._database)
        with suppress(BrokerUnavailable):
            self._take_over()
        threading.Thread(target=self._live, name="heart", daemon=True).start()
        try:
            self._engine = self._make_engine()
        except Exception:
            logger.exception("the worker can't begin; it tries again")
            time.sleep(BEAT_SECONDS)
            os._exit(1)
        if self._prewarm:
            try:
                self._engine.prewarm(self._reporter)
            except Exception:  # the first job that needs the model says what is wrong with it
                logger.exception("the default model can't be loaded")
        self._idle_since = time.monotonic()

    def busy(self) -> bool:
        """In the parent: whether a job is running here."""
        return bool(self._database.expired(name=self.worker.name))

    def close(self) -> None:
        """In the parent, once the child has ended: what was still running is for others, and this worker is no longer listed."""
        for job in self._database.expired(name=self.worker.name):
            self._database.requeue(job.id, job.run, "The worker was stopped; another one begins anew.", counted=False)
        self._database.deregister(self.worker.name)

    def work(self, task: str) -> None:
        """Claim what is next in the queue and do it; nothing if nothing waits."""
        self._idle_since, self._late = float("inf"), False
        signal.signal(signal.SIGUSR1, self._interrupt)
        try:
            self._work(task)
        finally:
            self._idle_since = time.monotonic()

    def _interrupt(self, *_: object) -> None:
        """Raise SoftTimeLimitExceeded when Celery's soft limit strikes, and note it: the code that it interrupts may report a fault of its own."""
        self._late = True
        raise SoftTimeLimitExceeded

    def _work(self, task: str) -> None:
        if self._engine is None:
            raise RuntimeError("open() must be called first")
        self._task = task
        try:
            self._take_over()
            self._end()
            self._give_back()
            jobs = self._claim()
        except BrokerUnavailable:
            logger.warning("the broker can't be reached; what waits goes on waiting")
            return
        try:
            if jobs:
                self._run(jobs, self._engine)
        finally:  # a limit may strike anywhere: what has no end here is left to be settled
            for job in jobs:
                if job.run not in self._ends:
                    self._jobs.pop(job.run, None)

    def _run(self, jobs: list[Job], engine: Engine) -> None:
        late = timed_out(self._job_seconds).problem()
        problems: Problems
        try:
            self._reporter.begin({job.id: job.run for job in jobs})
            problems = engine.run(jobs, self._reporter)
        except SoftTimeLimitExceeded:
            problems = dict.fromkeys((job.id for job in jobs), late)
        except Exception:
            logger.exception("job %s", ", ".join(job.id for job in jobs))
            failed = HeadscopeError("The worker failed on this job; its log says why.")
            problems = dict.fromkeys((job.id for job in jobs), failed.problem())
        if self._late:  # whatever the interruption was taken for
            problems = {id_: problem and late for id_, problem in problems.items()}
        self._ends |= {job.run: outcome(problems[job.id]) for job in jobs}
        with suppress(BrokerUnavailable):
            self._end()

    def _claim(self) -> list[Job]:
        with self._claiming:
            self._misheard = True  # until the answer is here
            jobs = self._database.claim(self._now())
            self._jobs |= {job.run: job for job in jobs}
            self._misheard = False
        return jobs

    def _give_back(self) -> None:
        """After an answer that was lost: what this worker was given without its knowing is for others, at once and as if nothing had been."""
        with self._claiming:
            for job in self._database.expired(name=self.worker.name) if self._misheard else ():
                if job.run not in self._jobs:
                    self._database.requeue(job.id, job.run, "It waits again: its worker was cut off.", counted=False)
            self._misheard = False

    def _end(self) -> None:
        """Tell the record what has ended. What it could not be told is told again at the next beat."""
        with self._ending:
            for run, (status, problem) in list(self._ends.items()):
                self._database.finish(self._jobs[run].id, run, status, problem)
                del self._ends[run], self._jobs[run]

    def _take_over(self) -> None:
        """Settle, once, what an earlier child of this name still held."""
        if not self._settled:
            settle(self._database, self._database.expired(name=self.worker.name), self._job_seconds)
            self._database.deregister(self.worker.name)
            self._settled = True

    def _now(self) -> Worker:
        """The worker as it is now."""
        engine = self._engine
        if engine is None:
            return replace(self.worker, pid=os.getpid())
        return replace(self.worker, task=self._task, pid=os.getpid(), warm=engine.warm, most_tokens=engine.most_tokens)

    def _live(self) -> None:
        """Say so from time to time, as long as this process lives: Celery lets none outlive its parent."""
        while True:
            try:
                self._end()
                self._give_back()
                self._reporter.flush()
                self._database.heartbeat(self._now(), list(self._jobs))
                self._discard_ended(self._database)
                self._look_after_parent()
            except BrokerUnavailable:
                pass
            except Exception:
                logger.exception("heart")
            time.sleep(BEAT_SECONDS)

    def _look_after_parent(self) -> None:
        """A parent that has brought no message for long, although there are some, hears nothing any more: it has to be started anew."""
        idle = time.monotonic() - self._idle_since > DEAF_SECONDS
        self._unheard = self._unheard + 1 if idle and self._messages() else 0
        if self._unheard > 1:  # at two beats: those at one may be on their way
            logger.error("messages wait, and none has come for long: this worker ends, to be started again")
            os.kill(os.getppid(), signal.SIGKILL)  # and this process goes with it
