"""The embedded home: one dispatcher thread, one spawned child. A child that dies, hangs or is killed takes nobody along."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import signal
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import Connection
from typing import Any

from ..errors import Cancelled, HeadscopeError
from .job import Claimant, Job, Record, Status, settle, timed_out
from .line import Line, ServerLine

logger = logging.getLogger("headscope.jobs")

POLL_SECONDS = 0.05
ME = Claimant("embedded")

Problem = dict[str, Any]
Work = Callable[[str, str, Line], Problem | None]


class Embedded:
    """Runs queued jobs one after another in a child process.

    `start_child(*start_args)` is called once in every new child, then `work(id, payload, line)` per job; both are module-level functions. `work` returns a
    problem document, or None when the result is stored. `on_change` is called after every change, from the dispatcher's thread.
    """

    def __init__(
        self,
        record: Record,
        work: Work,
        start_child: Callable[..., None],
        start_args: tuple[Any, ...],
        *,
        job_seconds: float,
        cancel_seconds: float,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self._record, self._work, self._on_change = record, work, on_change
        self._start_child, self._start_args = start_child, start_args
        self._job_seconds, self._cancel_seconds = job_seconds, cancel_seconds
        self._wake, self._stopping = threading.Event(), threading.Event()
        self._pool: ProcessPoolExecutor | None = None
        self._line: ServerLine | None = None
        self._thread = threading.Thread(target=self._dispatch, name="dispatcher", daemon=True)

    def start(self, warm: Callable[[Line], None] | None = None) -> None:
        """Take up what an earlier run left, and begin. `warm` runs first in the child."""
        for job in self._record.lost():
            # The stop was not the job's fault, so the attempt does not count.
            self._record.requeue(job.id, job.run, "", counted=False)
        self._record.leave(ME.name)
        self._record.trim()
        self._warm = warm
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

    @property
    def child(self) -> int | None:
        """Process id of the child, if there is one now."""
        return next(iter(_processes(self._pool)), None)

    def _dispatch(self) -> None:
        if self._warm is not None:
            self._start_pool().submit(_on_line, self._warm, 0)
        while not self._stopping.is_set():
            self._wake.clear()
            try:
                jobs = self._record.claim(ME)
                if not jobs:
                    self._listen()
                    self._wake.wait(1.0)
                    continue
                self._on_change()
                for job in jobs:
                    self._run(job)
            except Exception:  # the dispatcher must outlive anything, a full disk for instance
                logger.exception("dispatcher")
                self._stopping.wait(1.0)
            self._on_change()

    def _run(self, job: Job) -> None:
        try:
            problem = self._wait(job, self._start_pool().submit(_on_line, self._work, job.run, job.id, job.payload))
        except BrokenProcessPool:
            self._lost(job)
            return
        except HeadscopeError as error:
            problem = error.problem()
        except Exception:
            logger.exception("job %s", job.id)
            problem = HeadscopeError("The server failed on this job; its log says why.").problem()
        self._listen()
        status: Status = "done" if problem is None else "cancelled" if problem["code"] == Cancelled.code else "failed"
        self._note(lambda: self._record.finish(job.id, job.run, status, problem))

    def _note(self, change: Callable[[], object]) -> None:
        """Write a job's end down, trying again while the disk is full: no job may stay running for ever."""
        while True:
            try:
                change()
            except sqlite3.OperationalError:
                logger.exception("the record could not be written")
                if self._stopping.wait(1.0):
                    return
            else:
                return

    def _wait(self, job: Job, future: Future[Problem | None]) -> Problem | None:
        """The child's answer. Raises TimedOut or Cancelled, after killing a child that does not stop by itself."""
        deadline = time.monotonic() + self._job_seconds
        cancelled_at: float | None = None
        while True:
            try:
                return future.result(timeout=POLL_SECONDS)
            except NotYet:
                if future.done():
                    raise
            self._listen()
            now = time.monotonic()
            if self._stopping.is_set():
                self._kill()
                raise BrokenProcessPool
            if now > deadline:
                self._kill()
                raise timed_out(self._job_seconds)
            if cancelled_at is None:
                current = self._record.get(job.id)
                if current is None or current.run != job.run or current.status != "running":
                    cancelled_at = now
                    if self._line:
                        self._line.cancel(job.run)
            elif now > cancelled_at + self._cancel_seconds:
                self._kill()
                raise Cancelled("The analysis was cancelled.")

    def _listen(self) -> None:
        """Write down what the child has said."""
        for kind, *said in self._line.messages() if self._line else ():
            with contextlib.suppress(sqlite3.OperationalError):  # progress may be lost while the disk is full
                if kind == "count":
                    self._record.count(*said)
                else:
                    self._record.progress(*said)

    def _lost(self, job: Job) -> None:
        self._listen()
        self._kill()
        if self._stopping.is_set():
            return  # the next start queues it again
        self._note(lambda: settle(self._record, [job], self._job_seconds))

    def _start_pool(self) -> ProcessPoolExecutor:
        if self._pool is None:
            ours, theirs = multiprocessing.get_context("spawn").Pipe()
            self._line = ServerLine(ours)
            self._pool = ProcessPoolExecutor(
                1,
                mp_context=multiprocessing.get_context("spawn"),
                initializer=_child_main,
                initargs=(os.getpid(), theirs, self._start_child, self._start_args),
            )
        return self._pool

    def _kill(self) -> None:
        pool, self._pool = self._pool, None
        if pool is None:
            return
        for process in _processes(pool):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        pool.shutdown(wait=True, cancel_futures=True)
        if self._line:
            self._line.close()
            self._line = None


def _processes(pool: ProcessPoolExecutor | None) -> list[int]:
    # The executor keeps its processes to itself until Python 3.14 (kill_workers).
    return list(getattr(pool, "_processes", None) or ())


_child_line: Line | None = None


def _on_line(work: Callable[..., Any], run: int, *arguments: Any) -> Any:
    """In the child: `work` with the child's end of the line as last argument."""
    if _child_line is None:
        raise RuntimeError("this is not a child")
    _child_line.begin(run)
    return work(*arguments, _child_line)


def _child_main(
    parent: int, connection: Connection, start_child: Callable[..., None], arguments: tuple[Any, ...]
) -> None:
    """Set up a new child: it leaves Ctrl-C to its parent and does not outlive it."""
    global _child_line
    _child_line = Line(connection)
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def follow() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=follow, name="follow-parent", daemon=True).start()
    start_child(*arguments)
