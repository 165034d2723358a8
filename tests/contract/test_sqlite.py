"""The embedded home's file: an older one is brought up to date, and what is accepted is durable."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from headscope.jobs import SqliteJobDatabase
from tests.contract.job_databases import WORKER, accept, order, the

# The file of version 0.1 and what stood in it.
OLD = """
CREATE TABLE jobs (
    id TEXT PRIMARY KEY, payload TEXT NOT NULL, batch TEXT, priority INTEGER NOT NULL, status TEXT NOT NULL,
    fraction REAL NOT NULL DEFAULT 0, stage TEXT NOT NULL DEFAULT 'queued', detail TEXT NOT NULL DEFAULT '',
    attempts INTEGER NOT NULL DEFAULT 0, error TEXT, created REAL NOT NULL, started REAL, finished REAL, version INTEGER NOT NULL
);
CREATE INDEX jobs_queue ON jobs (status, priority, created);
CREATE INDEX jobs_version ON jobs (version);
CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL);
CREATE TRIGGER jobs_forgotten AFTER DELETE ON jobs BEGIN
    INSERT INTO counters VALUES ('forgotten_version', OLD.version) ON CONFLICT (name) DO UPDATE SET value = MAX(value, excluded.value);
END;
INSERT INTO counters VALUES ('forward_passes', 41), ('forgotten_version', 900);
INSERT INTO jobs (id, payload, priority, status, attempts, error, created, started, finished, version) VALUES
    ('a', '{"n": 1}', 0, 'done', 1, NULL, 1.0, 2.0, 3.0, 10),
    ('b', '{"n": 2}', 0, 'failed', 3, '{"code": "timed-out"}', 2.0, 2.0, 3.0, 20),
    ('c', '{"n": 3}', 0, 'running', 1, NULL, 3.0, 4.0, NULL, 50),
    ('d', '{"n": 4}', 1, 'queued', 0, NULL, 4.0, NULL, NULL, 30),
    ('e', '{"n": 5}', 0, 'queued', 0, NULL, 5.0, NULL, NULL, 40);
"""


@pytest.fixture
def old(tmp_path: Path) -> Path:
    path = tmp_path / "jobs.db"
    connection = sqlite3.connect(path)
    connection.executescript(OLD)
    connection.close()
    return path


def test_a_file_of_an_older_version(old: Path) -> None:
    """Its jobs stay, in their order, as things of the one user there was; versions and counters go on."""
    database = SqliteJobDatabase(old)
    assert database.statuses() == {"done": 1, "failed": 1, "running": 1, "queued": 2}
    assert database.newest_version() == 900
    assert database.counters() == {"forward_passes": 41}
    assert [job.id for job in database.page(10, float("inf"))] == list("edcba")
    assert the(database, "b").error == {"code": "timed-out"}
    assert all(database.may_read(id_, "local") for id_ in "abcde")
    (running,) = database.expired()
    assert running.id == "c"
    assert database.requeue("c", running.run, "", counted=False)
    accept(database, 1)
    assert order(database) == ["c", "e", f"{1:032x}", "d"]
    assert database.claim(WORKER) == []
    assert {the(database, id_).kind for id_ in "abcde"} == {"analysis"}
    database.close()
    again = SqliteJobDatabase(old)
    assert again.statuses() == {"done": 5, "failed": 1}
    assert again.newest_version() > 900
    again.close()


def test_a_file_that_can_not_be_brought_up_to_date_stays_as_it_is(old: Path) -> None:
    """It is all or nothing: whatever goes wrong on the way, the older version can go on with its file."""
    connection = sqlite3.connect(old)
    connection.execute("CREATE TABLE observations (something_else TEXT)")
    connection.commit()
    before = list(connection.iterdump())
    with pytest.raises(sqlite3.OperationalError):
        SqliteJobDatabase(old)
    assert list(connection.iterdump()) == before
    connection.close()
