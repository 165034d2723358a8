"""The embedded home: one dispatcher thread, one spawned child. A child that dies, hangs or is killed takes nobody along."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import Connection
from typing import Any

from ..errors import HeadscopeError, StorageFull, StoreUnavailable
from .engine import Engine, Problems
from .job import Job, JobDatabase, Worker, outcome, settle, timed_out
from .progress import PipeReporter, ServerReporter

logger = logging.getLogger("headscope.jobs")

POLL_SECONDS = 0.05
NAME = "embedded"
# Ended jobs are dropped this often, in s.
TRIM_SECONDS = 60.0

Answer = tuple[Problems, Worker]


class Embedded:
    """Runs queued jobs one after another in a child process.

    `engine(*arguments)`, a module-level function, is called once in every new child. `on_change` is called after every change, from the
    dispatcher's thread, and `discard_ended` after every run, whose child may have been killed. With `prewarm` the child gets ready before the first job.
    """

    def __init__(
        self,
        database: JobDatabase,
        engine: Callable[..., Engine],
        arguments: tuple[Any, ...],
        *,
        job_seconds: float,
        cancel_seconds: float,
        prewarm: bool = False,
        on_change: Callable[[], None] = lambda: None,
        discard_ended: Callable[[], None] = lambda: None,
    ) -> None:
        self._database, self._on_change, self._discard_ended = database, on_change, discard_ended
        self._engine, self._arguments, self._prewarm = engine, arguments, prewarm
        self._job_seconds, self._cancel_seconds = job_seconds, cancel_seconds
        self._wake, self._stopping = threading.Event(), threading.Event()
        self._pool: ProcessPoolExecutor | None = None
        self._reporter: ServerReporter | None = None
        self._me = Worker(NAME)
        self._trimmed = 0.0
        self._reported = ""
        self._thread = threading.Thread(target=self._dispatch, name="dispatcher", daemon=True)

    def start(self) -> None:
        """Take up what an earlier run left, and begin."""
        for job in self._database.expired():
            # The stop was not the job's fault, so the attempt does not count.
            self._database.requeue(job.id, job.run, "", counted=False)
        self._database.deregister(NAME)
        self._thread.start()

    def wake(self) -> None:
        """There may be something to do."""
        self._wake.set()

    def stop(self) -> None:
        """Stop at once; what was running is queued again at the next start."""
        self._stopping.set()
        self._wake.set()
        self._thread.join(timeout=10)
        self._kill()

    def alive(self) -> bool:
        """Whether jobs are being taken."""
        return self._thread.is_alive()

    def depths(self) -> dict[str, int]:
        """Nothing: there are no queues beside the record."""
        return {}

    @property
    def child(self) -> int | None:
        """Process id of the child, if there is one now."""
        return next(iter(_processes(self._pool)), None)

    def _dispatch(self) -> None:
        if self._prewarm:
            self._start_pool().submit(_prewarm)
        while not self._stopping.is_set():
            self._wake.clear()
            try:
                jobs = self._database.claim(self._me)
                if not jobs:
                    self._listen()
                    self._trim()
                    self._wake.wait(1.0)
                    continue
                self._on_change()
                self._run(jobs)
                self._discard_ended()
                self._reported = ""
            except HeadscopeError as error:  # a full disk, for instance
                self._report(error)
                self._stopping.wait(1.0)
            except Exception:  # the dispatcher must outlive anything
                logger.exception("dispatcher")
                self._stopping.wait(1.0)
            self._on_change()

    def _report(self, error: HeadscopeError) -> None:
        """Log what keeps the dispatcher from going on, once in a row."""
        if error.detail != self._reported:
            self._reported = error.detail
            logger.error("jobs cannot be run now: %s", error.detail)

    def _run(self, jobs: list[Job]) -> None:
        try:
            problems = self._wait(jobs, self._start_pool().submit(_work, jobs))
        except BrokenProcessPool:
            self._lost(jobs)
            return
        except HeadscopeError as error:
            problems = dict.fromkeys((job.id for job in jobs), error.problem())
        except Exception:
            logger.exception("job %s", ", ".join(job.id for job in jobs))
            failed = HeadscopeError("The server failed on this job; its log says why.").problem()
            problems = dict.fromkeys((job.id for job in jobs), failed)
        self._listen()
        for job in jobs:
            self._note(lambda job=job: self._database.finish(job.id, job.run, *outcome(problems[job.id])))  # type: ignore[misc]

    def _note(self, change: Callable[[], object]) -> None:
        """Write a job's end down, trying again while the disk is full: no job may stay running for ever."""
        while True:
            try:
                change()
            except (StorageFull, StoreUnavailable) as error:
                self._report(error)
                if self._stopping.wait(1.0):
                    return
            else:
                return

    def _wait(self, jobs: list[Job], future: Future[Answer]) -> Problems:
        """The child's answer. Raises TimedOut, or BrokenProcessPool, after killing a child that does not stop by itself."""
        deadline = time.monotonic() + self._job_seconds
        unwanted: dict[int, float] = {}  # run -> since when
        while True:
            wait([future], timeout=POLL_SECONDS)
            if future.done():
                problems, self._me = future.result()
                return problems
            self._listen()
            now = time.monotonic()
            if self._stopping.is_set():
                self._kill()
                raise BrokenProcessPool
            if now > deadline:
                self._kill()
                raise timed_out(self._job_seconds)
            self._cancel(jobs, unwanted, now)
            if unwanted and now > min(unwanted.values()) + self._cancel_seconds:
                self._kill()
                self._give_back(jobs)
                raise BrokenProcessPool

    def _cancel(self, jobs: list[Job], unwanted: dict[int, float], now: float) -> None:
        """Tell the child once of each run that is no longer wanted."""
        current = self._database.get_many([job.id for job in jobs])
        for job in jobs:
            found = current.get(job.id)
            if job.run not in unwanted and (found is None or found.run != job.run or found.status != "running"):
                unwanted[job.run] = now
                if self._reporter:
                    self._reporter.cancel(job.run)

    def _give_back(self, jobs: list[Job]) -> None:
        """Queue again what had to stop because of another job in its group; nothing happens to those that have ended."""
        for job in jobs:
            self._note(lambda job=job: self._database.requeue(job.id, job.run, "", counted=False))  # type: ignore[misc]

    def _listen(self) -> None:
        """Write down what the child has said."""
        for kind, *said in self._reporter.messages() if self._reporter else ():
            with contextlib.suppress(HeadscopeError):  # progress may be lost while the disk is full
                getattr(self._database, kind)(*said)

    def _trim(self) -> None:
        if time.monotonic() - self._trimmed > TRIM_SECONDS:
            self._trimmed = time.monotonic()
            self._database.trim()

    def _lost(self, jobs: list[Job]) -> None:
        self._listen()
        self._kill()
        if self._stopping.is_set():
            return  # the next start queues them again
        self._note(lambda: settle(self._database, jobs, self._job_seconds))
        self._note(lambda: self._database.deregister(NAME))

    def _start_pool(self) -> ProcessPoolExecutor:
        if self._pool is None:
            ours, theirs = multiprocessing.get_context("spawn").Pipe()
            self._reporter = ServerReporter(ours)
            self._pool = ProcessPoolExecutor(
                1,
                mp_context=multiprocessing.get_context("spawn"),
                initializer=_child_main,
                initargs=(os.getpid(), theirs, self._engine, self._arguments),
            )
        return self._pool

    def _kill(self) -> None:
        pool, self._pool = self._pool, None
        self._me = Worker(NAME)
        if pool is None:
            return
        for process in _processes(pool):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        pool.shutdown(wait=True, cancel_futures=True)
        if self._reporter:
            self._reporter.close()
            self._reporter = None


def _processes(pool: ProcessPoolExecutor | None) -> list[int]:
    # The executor keeps its processes to itself until Python 3.14 (kill_workers).
    return list(getattr(pool, "_processes", None) or ())


class _Child:
    """What the child process has: its end of the line, and its engine."""

    reporter: PipeReporter
    engine: Engine


def _prewarm() -> None:
    """In the child."""
    _Child.engine.prewarm(_Child.reporter)


def _work(jobs: list[Job]) -> Answer:
    """In the child: the problems of the jobs by id, and what it is ready for now."""
    _Child.reporter.begin({job.id: job.run for job in jobs})
    problems = _Child.engine.run(jobs, _Child.reporter)
    return problems, Worker(NAME, warm=_Child.engine.warm, most_tokens=_Child.engine.most_tokens, pid=os.getpid())


def _child_main(parent: int, connection: Connection, engine: Callable[..., Engine], arguments: tuple[Any, ...]) -> None:
    """Set up a new child: it leaves Ctrl-C to its parent and does not outlive it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def follow() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=follow, name="follow-parent", daemon=True).start()
    _Child.reporter, _Child.engine = PipeReporter(connection), engine(*arguments)
