"""What is accepted is durable before it is answered, and workers hear of it before that."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from headscope.database import Database
from headscope.errors import StorageFull
from headscope.jobs import JobDatabase
from headscope.store import Blobs
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


def test_inputs_are_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file of a blob, and its folder, before the blob has its name; then the folders that name it. A disk that fails is reported, and nothing is stored."""
    prepare(tmp_path / "headscope.db")
    opened, events = Blobs.local(tmp_path, 1_000_000, Database(tmp_path / "headscope.db")), list[str]()
    rename, fsync = Path.rename, os.fsync

    def note(file: int) -> None:
        events.append(Path(f"/proc/self/fd/{file}").readlink().relative_to(tmp_path).as_posix())
        fsync(file)

    def note_name(path: Path, target: Any) -> Path:
        events.append("rename")
        return rename(path, target)

    monkeypatch.setattr("headscope.store.local.os.fsync", note)
    monkeypatch.setattr(Path, "rename", note_name)
    id_ = opened.put_bytes(b"1")
    written = sorted(path.name for path in (tmp_path / "results" / id_[:2] / id_).iterdir())
    place = events.index("rename")
    *files, folder = events[:place]
    assert sorted(files) == [f"{folder}/{name}" for name in written]
    assert folder.startswith("incoming/")
    assert events[place + 1 :] == [f"results/{id_[:2]}", "results"]

    def fail(_: int) -> None:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr("headscope.store.local.os.fsync", fail)
    with pytest.raises(StorageFull):
        opened.put_bytes(b"2")
    assert opened.ids() == {id_}
    assert not list(opened.staging.iterdir())
