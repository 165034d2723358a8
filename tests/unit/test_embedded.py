"""The embedded deployment waits for its child: a result counts whenever it arrives."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from typing import Any

from headscope.jobs import Embedded, SqliteJobDatabase, Work, Worker


class JustTooLate(Future[Any]):
    """A future that is done just after waiting for it has timed out."""

    def result(self, timeout: float | None = None) -> Any:
        if timeout is None:
            return super().result()
        self.set_result(({"a": None}, Worker("embedded")))
        raise TimeoutError


def test_an_answer_just_after_a_look_is_no_failure(tmp_path: Path) -> None:
    database = SqliteJobDatabase(tmp_path / "jobs.db")
    embedded = Embedded(database, lambda: None, (), job_seconds=30, cancel_seconds=1, modules=[])
    database.enqueue([Work("a", "{}")])
    late = JustTooLate()
    jobs = database.claim(Worker("embedded"))
    listened = []

    def listen() -> None:  # between two looks
        listened.append(True)
        late.set_result(({"a": None}, Worker("embedded")))

    embedded._receive = listen
    assert embedded._wait(jobs, late) == {"a": None}
    assert len(listened) <= 1
    database.close()
