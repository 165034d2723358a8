"""The embedded deployment waits for its child: a result counts whenever it arrives."""

from __future__ import annotations

import socket
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import pytest

from headscope.database import Database
from headscope.jobs import Embedded, Job, JobDatabase, Work, Worker
from tests.contract.job_databases import prepare


def opened(path: Path) -> JobDatabase:
    """Return an empty job database."""
    prepare(path)
    return JobDatabase(Database(path))


class JustTooLate(Future[Any]):
    """A future that is done just after waiting for it has timed out."""

    def result(self, timeout: float | None = None) -> Any:
        if timeout is None:
            return super().result()
        self.set_result(({"a": None}, 0))
        raise TimeoutError


def test_an_answer_just_after_a_look_is_no_failure(tmp_path: Path) -> None:
    database = opened(tmp_path / "headscope.db")
    embedded = Embedded(database, lambda: None, (), job_seconds=30, cancel_seconds=1, modules=[])
    database.enqueue([Work("a", "{}")])
    late = JustTooLate()
    jobs = database.claim(Worker("embedded"))
    listened = []

    def listen(_: list[Job]) -> None:  # between two looks
        listened.append(True)
        late.set_result(({"a": None}, 0))

    embedded._receive = listen
    assert embedded._wait(jobs, late) == {"a": None}
    assert len(listened) <= 1
    database.close()


def test_the_end_of_the_process_that_forks_is_the_end_of_its_child(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its socket refuses connections a moment before the process counts as ended: the jobs are requeued, and do not fail."""
    database = opened(tmp_path / "headscope.db")
    embedded = Embedded(database, print, (), job_seconds=30, cancel_seconds=1, modules=[])
    database.enqueue([Work("a", "{}")])
    jobs = database.claim(Worker("embedded"))
    forkserver.ensure_running()
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "socket"))
        monkeypatch.setattr(forkserver._forkserver, "_forkserver_address", str(tmp_path / "socket"))
        with pytest.raises(BrokenProcessPool):
            embedded._submit(len, jobs)
        embedded._run(jobs)
    (job,) = database.get_many(["a"]).values()
    assert (job.status, job.error) == ("queued", None)
    database.close()
