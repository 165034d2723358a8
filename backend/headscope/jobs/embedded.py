"""The embedded deployment: a child process of the server runs jobs, so that its crashes and hangs leave the server running."""

from __future__ import annotations

import ctypes
import logging
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Collection
from contextlib import suppress
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from typing import Any, Literal

from ..errors import HeadscopeError
from . import metrics
from .announcements import Announce
from .job import Worker
from .job_database import JobDatabase
from .supervisor import Supervisor
from .worker_process import WorkerProcess

logger = logging.getLogger("headscope.jobs")

# An idle child looks for jobs this often (s), and whenever it is woken.
IDLE_SECONDS = 1.0
# A child is forked from a process that imports its modules once, so replacing one takes milliseconds instead of the seconds that torch needs.
CONTEXT = multiprocessing.get_context("forkserver")
# What a child process runs: all jobs but downloads, or these alone.
Runs = Literal["jobs", "downloads"]
PR_SET_PDEATHSIG = 1  # of Linux: the signal that a process gets when its parent ends


class Embedded(Supervisor):
    """Looks after a child process that runs the jobs one after another: it is started for the first job, or with `prewarm` at once,
    to load models whenever no job waits. Until the first child has done so, jobs can be queued, but do not count as able to run.

    `make_process(name, announce)`, which can be pickled, is called in the child; `modules` are imported before it is forked. The child runs all jobs but
    downloads, or `downloads` alone. A thread calls `announce` with the ids of jobs that it has changed. `options`: of Supervisor.
    """

    def __init__(
        self,
        database: JobDatabase,
        make_process: Callable[[str, Announce], WorkerProcess],
        *,
        modules: list[str],
        prewarm: bool = False,
        downloads: bool = False,
        announce: Announce = lambda _: None,
        **options: Any,
    ) -> None:
        self._own, self._downloads = "downloads" if downloads else "embedded", downloads
        super().__init__(database, self._own, **options)
        self._make_process, self._modules, self._announce = make_process, modules, announce
        self._prewarm = prewarm
        self._child: _Child | None = None

    def start(self) -> None:
        """Requeue the jobs of an earlier process, then start."""
        self._database.release(self._own)
        super().start()

    def wake(self) -> None:
        """Have the child look for jobs now, or start one."""
        child = self._child
        child.wake() if child else super().wake()

    def alive(self) -> bool:
        """Return whether jobs can run, with the models loaded that are loaded in advance."""
        child = self._child
        return super().alive() and not self._prewarm and (child is None or child.prewarmed)

    def stop(self) -> None:
        """Stop at once; the next start requeues running jobs."""
        super().stop()
        self._kill(self._own)

    def _dispatch(self, *, due: bool) -> None:
        """Start a child if there is work; replace one that has ended, after its jobs are settled."""
        if self._child and not self._child.alive:
            self._kill(self._own)
            self._database.take_over(self._own, self._job_seconds)
            self._child = None
            self._discard_ended()
        if self._child is None and (self._prewarm or self._database.has_queued(downloads=self._downloads)):
            CONTEXT.set_forkserver_preload(self._modules)
            arguments = (self._make_process, self._own, self._downloads, self._prewarm)
            with suppress(ConnectionError, EOFError):  # the process that forks has just ended; the next tick starts one
                self._database.heartbeat(Worker(self._own), ())  # a child that never sends one is killed, too
                self._child = _Child(arguments, self._announce, self._wake.set, prewarmed=not self._prewarm)
                self._prewarm = False

    def _kill(self, worker: str) -> None:
        if self._child:
            self._child.kill()


class _Child:
    """A child process, and the server's end of the pipe to it: what it receives wakes it, and it sends the ids of jobs that have changed.

    It sends None once it has loaded all models that are loaded in advance: then it is `prewarmed`.
    """

    def __init__(
        self, arguments: tuple[Any, ...], announce: Announce, ended: Callable[[], None], *, prewarmed: bool
    ) -> None:
        self._pipe, theirs = CONTEXT.Pipe()
        os.set_blocking(self._pipe.fileno(), False)
        self._announce, self._ended, self.alive, self.prewarmed = announce, ended, True, prewarmed
        arguments = (theirs, metrics.relay().sending, *arguments)
        self._process = CONTEXT.Process(target=_run_child, args=arguments, daemon=True)
        self._process.start()
        theirs.close()
        threading.Thread(target=self._receive, name="announcements", daemon=True).start()

    def wake(self) -> None:
        """Have the child look for jobs if it is idle."""
        with suppress(OSError):  # full, so it will be woken; or closed
            self._pipe.send(None)

    def kill(self) -> None:
        """Kill the process, even if it stands still, and wait for its end."""
        self._process.kill()
        self._process.join()
        self.alive = False

    def _receive(self) -> None:
        ended = self._process.sentinel  # of the process, or of the one that forked it
        with suppress(EOFError, OSError):
            while ended not in wait([self._pipe, ended]):
                ids = self._pipe.recv()
                if ids is None:
                    self.prewarmed = True
                else:
                    self._announce(ids)
        self.alive = False
        self._ended()


def _run_child(
    pipe: Connection,
    counts: Connection,
    make_process: Callable[[str, Announce], WorkerProcess],
    name: str,
    downloads: bool,
    prewarm: bool,
) -> None:
    """Run jobs in a new child, until its parent ends."""
    _end_with_parent()
    metrics.send_to(counts)
    os.set_blocking(pipe.fileno(), False)

    def announce(ids: Collection[str]) -> None:
        with suppress(OSError):  # full: the server sees the change a little later
            pipe.send(ids)

    process = make_process(name, announce)
    process.start()
    problem, prewarms = "", prewarm
    while True:
        idle, problem = _run_all(process, problem, downloads=downloads)
        if idle and prewarms:
            if process.prewarm():
                continue
            with suppress(OSError):  # full: tried again
                pipe.send(None)
                prewarms = False
        try:
            if pipe.poll(IDLE_SECONDS):
                while pipe.poll():
                    pipe.recv()
        except (EOFError, OSError):  # the server has ended
            return


def _run_all(process: WorkerProcess, problem: str, *, downloads: bool) -> tuple[bool, str]:
    """Run jobs until none is queued (True) or running them fails (False), and return the problem, which is logged unless it is the same as before."""
    try:
        while process.run_next(downloads=downloads):
            problem = ""
    except HeadscopeError as error:  # a full disk, for instance
        if error.detail != problem:
            logger.error("cannot run jobs: %s", error.detail)
        return False, error.detail
    except Exception:  # the child must survive any error
        logger.exception("worker process")
        return False, problem
    return True, problem


def _end_with_parent() -> None:
    """End this process with the server, on Linux even if it stands still, perhaps in the middle of a write."""
    threading.Thread(target=_follow_parent, name="follow-parent", daemon=True).start()
    # The process that forked this one ends once the server and all children have closed this pipe; these must not wait for each other.
    alive = getattr(getattr(forkserver, "_forkserver", None), "_forkserver_alive_fd", None)
    if alive is not None and sys.platform == "linux":
        os.close(alive)
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _follow_parent() -> None:
    server = multiprocessing.parent_process()
    if server is not None:
        server.join()
        os._exit(1)
