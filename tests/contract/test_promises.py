"""What is accepted is durable before it is answered, and workers hear of it before that."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from headscope.database import Database
from headscope.errors import StorageFull
from headscope.jobs import JobDatabase
from tests.contract.job_databases import IDS, Open, claimed, prepare, status, work


def test_workers_are_woken_once_they_can_claim(open_database: Open) -> None:
    """Another connection sees the job when `wake` is called."""
    database, other, seen = open_database(), open_database(), list[str]()
    database.enqueue(work(0), wake=lambda: seen.append(status(other, IDS[0])))
    assert seen == ["queued"]


def test_a_promise_waits_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite's write-ahead log is flushed at the end of a promise, after workers were woken, and not for other changes. A disk that fails is reported."""
    path = tmp_path / "headscope.db"
    prepare(path)
    database, events = JobDatabase(Database(path)), list[str]()

    def fsync(file: int) -> None:
        assert os.path.sameopenfile(file, log)
        events.append("flush")

    database.enqueue(work(0))
    log = os.open(f"{path}-wal", os.O_RDONLY)
    try:
        monkeypatch.setattr("headscope.database.sqlite.os.fsync", fsync)
        database.enqueue(work(1), wake=lambda: events.append("wake"))
        assert events == ["wake", "flush"]
        claimed(database)
        assert events == ["wake", "flush"]
    finally:
        os.close(log)

    def fail(_: int) -> None:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr("headscope.database.sqlite.os.fsync", fail)
    with pytest.raises(StorageFull):
        database.enqueue(work(2))
    database.close()
