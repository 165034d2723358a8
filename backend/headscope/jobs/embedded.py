"""The embedded deployment: one dispatcher thread and one child process, whose crashes and hangs leave the server running."""

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
from . import metrics
from .engine import Engine, Problems, run_jobs
from .job import End, Job, Worker, outcome, timed_out
from .job_database import JobDatabase
from .progress import PipeReporter, ServerReporter

logger = logging.getLogger("headscope.jobs")

POLL_SECONDS = 0.05
# A child is forked from a process that imports its modules once, so replacing one takes milliseconds instead of the seconds that torch needs.
CONTEXT = multiprocessing.get_context("forkserver")
# How often old jobs are removed, in s.
TRIM_SECONDS = 60.0

# The problems by job, and the most tokens of one forward pass.
Outcome = tuple[Problems, int]


class Embedded:
    """A queue whose jobs run one after another in a child process.

    `engine(*arguments)`, a module-level function, is called once in every new child; `modules` are imported before children are forked.
    The dispatcher thread calls `on_change` after every change, and `after_run` after every run, whose child may have been killed.
    With `prewarm` the child loads the default model before the first job. `downloads` are run beside everything else, by a queue of their own.
    """

    def __init__(
        self,
        database: JobDatabase,
        engine: Callable[..., Engine],
        arguments: tuple[Any, ...],
        *,
        job_seconds: float,
        cancel_seconds: float,
        modules: list[str],
        prewarm: bool = False,
        downloads: bool = False,
        on_change: Callable[[], None] = lambda: None,
        after_run: Callable[[list[Job]], None] = lambda _: None,
    ) -> None:
        self._database, self._on_change, self._after_run = database, on_change, after_run
        self._engine, self._arguments, self._prewarm = engine, arguments, prewarm
        self._modules = modules
        self._job_seconds, self._cancel_seconds = job_seconds, cancel_seconds
        self._wake, self._stopping = threading.Event(), threading.Event()
        self._pool: ProcessPoolExecutor | None = None
        self._reporter: ServerReporter | None = None
        self._downloads, self._name = downloads, "downloads" if downloads else "embedded"
        self._worker = Worker(self._name)
        self._trimmed = 0.0
        self._reported, self._blocked = "", False
        self._ends: list[End] = []  # of runs, to be written with the next claim
        self._thread = threading.Thread(target=self._dispatch, name="dispatcher", daemon=True)

    def start(self) -> None:
        """Requeue the jobs of an earlier process, then start the dispatcher."""
        for job in self._database.expired(name=self._name):
            # The job did not cause the stop, so the attempt does not count.
            self._database.requeue(job.id, job.run, "", counted=False)
        self._database.deregister(self._name)
        self._thread.start()

    def wake(self) -> None:
        """Make the dispatcher check the queue now."""
        self._wake.set()

    def stop(self) -> None:
        """Stop at once; the next start requeues running jobs."""
        self._stopping.set()
        self._wake.set()
        self._thread.join(timeout=10)
        self._kill()

    def alive(self) -> bool:
        """Return whether jobs can run: the dispatcher is running, and its database usable."""
        return self._thread.is_alive() and not self._blocked

    def depths(self) -> dict[str, int]:
        """Return nothing: there are no queues besides the job database."""
        return {}

    @property
    def child(self) -> int | None:
        """The process id of the child, None if there is none."""
        return next(iter(_processes(self._pool)), None)

    def _dispatch(self) -> None:
        if self._prewarm:
            with contextlib.suppress(BrokenProcessPool):
                self._submit(_prewarm)
        while not self._stopping.is_set():
            self._wake.clear()
            try:
                jobs = self._database.claim(self._worker, self._ends, downloads=self._downloads)
                self._blocked = False
                if self._ends or jobs:
                    self._ends = []
                    self._on_change()
                if not jobs:
                    self._trim()
                    self._wake.wait(1.0)
                    continue
                self._run(jobs)
                self._after_run(jobs)
                self._reported = ""
            except HeadscopeError as error:  # a full disk, for instance
                self._blocked = True
                self._report(error)
                self._stopping.wait(1.0)
            except Exception:  # the dispatcher must survive any error
                logger.exception("dispatcher")
                self._stopping.wait(1.0)
        with contextlib.suppress(HeadscopeError):
            self._database.end(self._ends)

    def _report(self, error: HeadscopeError) -> None:
        """Log what blocks the dispatcher, once in a row."""
        if error.detail != self._reported:
            self._reported = error.detail
            logger.error("cannot run jobs: %s", error.detail)

    def _run(self, jobs: list[Job]) -> None:
        try:
            problems = self._wait(jobs, self._submit(_work, jobs))
        except BrokenProcessPool:
            self._settle(jobs)
            self._on_change()
            return
        except HeadscopeError as error:
            problems = dict.fromkeys((job.id for job in jobs), error.problem())
        except Exception:
            logger.exception("job %s", ", ".join(job.id for job in jobs))
            failed = HeadscopeError("The server failed on this job; its log says why.").problem()
            problems = dict.fromkeys((job.id for job in jobs), failed)
        self._ends = [outcome(job, problems[job.id]) for job in jobs]

    def _write(self, change: Callable[[], object]) -> None:
        """Write a change. Retries while the disk is full: no job may stay running forever."""
        while True:
            try:
                change()
            except (StorageFull, StoreUnavailable) as error:
                self._report(error)
                if self._stopping.wait(1.0):
                    return
            else:
                return

    def _wait(self, jobs: list[Job], future: Future[Outcome]) -> Problems:
        """Wait for the child. Kills a child that does not stop by itself, then raises TimedOut or BrokenProcessPool."""
        deadline = time.monotonic() + self._job_seconds
        cancelled: dict[int, float] = {}  # run -> since when
        while True:
            wait([future], timeout=POLL_SECONDS)
            if future.done():
                problems, most_tokens = future.result()
                self._worker = Worker(self._name, most_tokens=most_tokens)
                return problems
            self._receive(jobs)
            now = time.monotonic()
            if self._stopping.is_set():
                self._kill()
                raise BrokenProcessPool
            if now > deadline:
                self._kill()
                raise timed_out(self._job_seconds)
            self._cancel(jobs, cancelled, now)
            if cancelled and now > min(cancelled.values()) + self._cancel_seconds:
                self._kill()
                self._requeue(jobs)
                raise BrokenProcessPool

    def _cancel(self, jobs: list[Job], cancelled: dict[int, float], now: float) -> None:
        """Tell the child, once, of each cancelled run."""
        current = self._database.running([job.id for job in jobs])
        for job in jobs:
            if job.run not in cancelled and current.get(job.id) != job.run:
                cancelled[job.run] = now
                if self._reporter:
                    self._reporter.cancel(job.run)

    def _requeue(self, jobs: list[Job]) -> None:
        """Requeue jobs that were stopped because of another one in their group. Ended jobs are unchanged."""
        for job in jobs:
            self._write(lambda job=job: self._database.requeue(job.id, job.run, "", counted=False))  # type: ignore[misc]

    def _receive(self, jobs: list[Job]) -> None:
        """Write the child's latest reports of these jobs to the job database."""
        reports = self._reporter.messages() if self._reporter else ()
        latest = {run: (id_, run, *report) for id_, run, *report in reports}
        for report in (latest[job.run] for job in jobs if job.run in latest):
            with contextlib.suppress(HeadscopeError):  # reports may be lost while the disk is full
                self._database.progress(*report)

    def _trim(self) -> None:
        if time.monotonic() - self._trimmed > TRIM_SECONDS:
            self._trimmed = time.monotonic()
            self._database.trim()

    def _settle(self, jobs: list[Job]) -> None:
        self._kill()
        if self._stopping.is_set():
            return  # the next start requeues them
        self._write(lambda: self._database.settle(jobs, self._job_seconds))
        self._write(lambda: self._database.deregister(self._name))

    def _start_pool(self) -> ProcessPoolExecutor:
        if self._pool is None:
            CONTEXT.set_forkserver_preload(self._modules)
            ours, theirs = CONTEXT.Pipe()
            self._reporter = ServerReporter(ours)
            self._pool = ProcessPoolExecutor(
                1,
                mp_context=CONTEXT,
                initializer=_child_main,
                initargs=(theirs, metrics.relay().sending, self._engine, self._arguments),
            )
        return self._pool

    def _submit(self, call: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Give the child something to do. Raises BrokenProcessPool if it has died, or the process that it would be forked from."""
        try:
            return self._start_pool().submit(call, *arguments)
        except (ConnectionError, EOFError) as error:
            raise BrokenProcessPool from error

    def _kill(self) -> None:
        pool, self._pool = self._pool, None
        self._worker = Worker(self._name)
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
    # The executor has no public access to its processes before Python 3.14 (kill_workers).
    return list(getattr(pool, "_processes", None) or ())


class _Child:
    """The globals of the child process: its reporter and its engine."""

    reporter: PipeReporter
    engine: Engine


def _prewarm() -> None:
    """Load the default model, in the child."""
    _Child.engine.prewarm()


def _work(jobs: list[Job]) -> Outcome:
    """Run jobs, in the child."""
    _Child.reporter.begin({job.id: job.run for job in jobs})
    problems = run_jobs(_Child.engine, jobs, _Child.reporter)
    return problems, _Child.engine.most_tokens


def _child_main(
    connection: Connection, counts: Connection, engine: Callable[..., Engine], arguments: tuple[Any, ...]
) -> None:
    """Set up a new child, which ignores Ctrl-C and exits with its parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def exit_with_parent() -> None:
        server = multiprocessing.parent_process()
        if server is not None:
            server.join()
            os._exit(1)

    threading.Thread(target=exit_with_parent, name="follow-parent", daemon=True).start()
    metrics.send_to(counts)
    _Child.reporter, _Child.engine = PipeReporter(connection), engine(*arguments)
