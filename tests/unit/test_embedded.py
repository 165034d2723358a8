"""The embedded deployment replaces its child process, and settles its jobs, whatever state it is in."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator, Sequence
from functools import partial
from multiprocessing import forkserver
from pathlib import Path

import psutil
import pytest

from headscope.database import Database
from headscope.jobs import (
    Embedded,
    Job,
    JobDatabase,
    Problem,
    ProgressReporter,
    Work,
    Worker,
    supervisor,
    worker_process,
)
from headscope.jobs.announcements import Announce
from headscope.jobs.worker_process import WorkerProcess
from tests.contract.job_databases import prepare, status, the
from tests.support.server import eventually


class Engine:
    """An engine whose process stops in the middle of a write when it runs the job `stops` for the first time."""

    warm: frozenset[str] = frozenset()
    most_tokens = 0

    def __init__(self, path: Path) -> None:
        self._database, self._model = Database(path), path.parent / "model"

    def prewarm(self) -> bool:
        """Load a model for as long as there is one, and note that it began."""
        if not self._model.exists():
            return False
        self._model.with_name("loading").touch()
        while self._model.exists():
            time.sleep(0.01)
        return True

    def run(self, jobs: Sequence[Job], _: ProgressReporter) -> dict[str, Problem | None]:
        (job,) = jobs
        if job.id == "stops" and job.attempts == 1:
            with self._database.change():
                os.kill(os.getpid(), signal.SIGSTOP)
        return {job.id: None}


def make_process(path: Path, name: str, announce: Announce) -> WorkerProcess:
    """Return a worker process that runs nothing, with a fast heartbeat."""
    worker_process.HEARTBEAT_SECONDS = 0.1
    return WorkerProcess(
        Worker(name), JobDatabase(Database(path), announce), partial(Engine, path), job_seconds=60, cancel_seconds=60
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The file of an empty job database."""
    prepare(tmp_path / "headscope.db")
    return tmp_path / "headscope.db"


@pytest.fixture
def database(path: Path) -> Iterator[JobDatabase]:
    """The server's job database."""
    opened = JobDatabase(Database(path))
    yield opened
    opened.close()


@pytest.fixture
def embedded(path: Path, database: JobDatabase) -> Iterator[Embedded]:
    """A deployment that is not started yet."""
    made = Embedded(database, partial(make_process, path), modules=[], job_seconds=60)
    yield made
    made.stop()


@pytest.fixture
def prewarming(path: Path, database: JobDatabase) -> Iterator[Embedded]:
    """A deployment whose child loads a model in advance until its file is removed; not started yet."""
    (path.parent / "model").touch()
    made = Embedded(database, partial(make_process, path), modules=[], prewarm=True, job_seconds=60)
    yield made
    made.stop()


def child(embedded: Embedded) -> psutil.Process:
    """Return the child process, once there is one."""
    found = eventually(lambda: embedded._child, "a child process")
    return psutil.Process(found._process.pid)


def submit(embedded: Embedded, database: JobDatabase, id_: str) -> None:
    """Queue a job."""
    database.enqueue([Work(id_, "{}")])
    embedded.wake()


def test_a_child_that_stands_still_keeps_no_lock(
    embedded: Embedded, database: JobDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write of the server waits until the child, which stopped in the middle of a write, is killed; its job is done by the next one."""
    monkeypatch.setattr(supervisor, "STALE_SECONDS", 4.0)
    embedded.start()
    submit(embedded, database, "stops")
    eventually(lambda: status(database, "stops") == "running", "the job")
    stopped = child(embedded)
    eventually(lambda: stopped.status() == psutil.STATUS_STOPPED, "the child to stand still")
    submit(embedded, database, "waits")
    eventually(lambda: status(database, "waits") == status(database, "stops") == "done", "both jobs")
    assert (the(database, "stops").attempts, the(database, "waits").attempts) == (2, 1)


def test_an_idle_child_that_stands_still(
    embedded: Embedded, database: JobDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is missed like a busy one, and replaced once there is a job."""
    monkeypatch.setattr(supervisor, "STALE_SECONDS", 4.0)
    embedded.start()
    submit(embedded, database, "a")
    eventually(lambda: status(database, "a") == "done", "the first job")
    child(embedded).suspend()
    submit(embedded, database, "b")
    eventually(lambda: status(database, "b") == "done", "the next job")
    assert the(database, "b").attempts == 1


def test_jobs_of_an_earlier_server(embedded: Embedded, database: JobDatabase) -> None:
    """A job that ran when the server was killed is done without another attempt."""
    database.enqueue([Work("a", "{}")])
    assert database.claim(Worker("embedded"))
    embedded.start()
    eventually(lambda: status(database, "a") == "done", "the job")
    assert the(database, "a").attempts == 1


def test_the_end_of_the_process_that_forks(
    embedded: Embedded, database: JobDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its socket refuses connections a moment before the process counts as ended: the child is started a moment later."""
    forkserver.ensure_running()
    with socket.socket(socket.AF_UNIX) as silent, monkeypatch.context() as patch:
        silent.bind(str(tmp_path / "socket"))
        patch.setattr(forkserver._forkserver, "_forkserver_address", str(tmp_path / "socket"))
        embedded.start()
        submit(embedded, database, "a")
        eventually(embedded.alive, "a look at the queue")
        assert embedded._child is None
    eventually(lambda: status(database, "a") == "done", "the job")


def test_models_are_loaded_while_no_job_waits(prewarming: Embedded, database: JobDatabase, path: Path) -> None:
    """A job that waits at the start comes first; the server is not ready before all models are loaded, and then runs what has arrived."""
    database.enqueue([Work("early", "{}")])
    prewarming.start()
    eventually((path.parent / "loading").exists, "the load of a model")
    eventually(lambda: status(database, "early") == "done", "the first job")
    submit(prewarming, database, "late")
    assert not prewarming.alive()
    assert status(database, "late") == "queued"
    (path.parent / "model").unlink()
    eventually(lambda: status(database, "late") == "done", "the other job")
    eventually(prewarming.alive, "the server to be ready")


def test_a_model_that_kills_the_child(prewarming: Embedded, database: JobDatabase, path: Path) -> None:
    """It is not loaded in advance again, so that the server becomes ready."""
    prewarming.start()
    eventually((path.parent / "loading").exists, "the load of a model")
    assert not prewarming.alive()
    child(prewarming).kill()
    eventually(prewarming.alive, "the server to be ready")
    submit(prewarming, database, "a")
    eventually(lambda: status(database, "a") == "done", "a job")
