"""Damaged database files are quarantined at start-up, and reported while they are in use."""

from __future__ import annotations

import logging
import os
import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from headscope.database import Database
from headscope.errors import DatabaseDamaged, HeadscopeError, InvalidSetting, StorageFull, StoreUnavailable
from headscope.jobs import JobDatabase, Work
from headscope.server.service import Service
from headscope.settings import Settings
from headscope.stores import EARLIER
from headscope.worker.process import build_embedded

from .job_databases import WORKER
from .test_store import check, name, write

PAGE = 4096
RESULTS = 3


def overwrite(path: Path, start: int, stop: int) -> None:
    """Fill a part of the file with noise, in place."""
    with path.open("r+b") as file:
        file.seek(start)
        file.write(random.Random(start).randbytes(stop - start))


def scatter(path: Path) -> None:
    """Fill every second page but the first with noise."""
    for start in range(PAGE, path.stat().st_size, 2 * PAGE):
        overwrite(path, start, start + PAGE)


def replace(path: Path) -> None:
    """Replace the file with the database of another program."""
    path.unlink()
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("CREATE TABLE jobs (x); CREATE TABLE results (x)")


def folder(path: Path) -> None:
    """Replace the file with a folder."""
    path.unlink()
    path.mkdir()


def garbage(path: Path) -> None:
    """Add a write-ahead log and an index of noise."""
    for name_ in ("-wal", "-shm"):
        path.with_name(path.name + name_).write_bytes(random.Random(1).randbytes(8 * PAGE))


DAMAGE: dict[str, Callable[[Path], object]] = {
    "half": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "header": lambda path: overwrite(path, 0, 100),
    "pages": scatter,
    "folder": folder,
    "other-format": lambda path: path.write_bytes(b"PK\x03\x04" + b"x" * 2 * PAGE),
    "other-schema": replace,
}


def service(home: Path) -> Service:
    """Return the service of a server that starts in that data directory."""
    made = Service(Settings(home=home), build_embedded)
    made.results.tidy()
    return made


def release(made: Service) -> None:
    """Release the data directory, as the end of a server's process does."""
    assert made._lock is not None
    os.close(made._lock)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The data directory of a stopped server, with results and queued jobs."""
    first = service(tmp_path)
    for number in range(RESULTS):
        write(first.results, number)
    first.database.enqueue([Work(name(number), "{}" * PAGE) for number in range(20)])
    with first.facts.read() as connection:
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    first.facts.close()
    release(first)
    return tmp_path


def quarantined(home: Path) -> list[str]:
    """Return the quarantined files."""
    return [path.name for path in home.glob("*.damaged-*[0-9]")]


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_database_is_quarantined(home: Path, damage: str, caplog: pytest.LogCaptureFixture) -> None:
    """The server starts with an empty database, logs one warning, and accepts new jobs; results are unchanged and indexed again."""
    DAMAGE[damage](home / "headscope.db")
    again = service(home)
    assert again.database.statuses() == {}
    again.database.enqueue([Work(name(1), "{}")])
    assert [job.id for job in again.database.claim(WORKER)] == [name(1)]
    for number in range(RESULTS):
        check(again.results, number)
    assert again.results.usage()[0] == RESULTS
    (kept,) = quarantined(home)
    (told,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert told.getMessage().startswith(f"headscope.db is damaged and was renamed to {kept}. ")
    assert told.exc_info is None


def test_a_valid_database_is_kept(home: Path) -> None:
    """An invalid write-ahead log does not damage a valid file."""
    garbage(home / "headscope.db")
    again = service(home)
    assert again.database.waiting() == 20
    assert not quarantined(home)


@pytest.mark.parametrize("part", ["results", "incoming", "server.lock", "inputs"])
def test_wrong_files_in_the_data_directory(tmp_path: Path, part: str) -> None:
    """A file in place of a folder, or the other way round, is an error."""
    (tmp_path / part).mkdir() if part == "server.lock" else (tmp_path / part).write_text("")
    with pytest.raises(InvalidSetting, match="HEADSCOPE_HOME"):
        service(tmp_path)


def test_a_second_server_does_not_quarantine(home: Path) -> None:
    """Only the one server that uses the data directory quarantines files."""
    running = service(home)
    overwrite(home / "headscope.db", 0, 100)
    with pytest.raises(HeadscopeError, match="Another Headscope server"):
        service(home)
    assert not quarantined(home)
    release(running)


@pytest.mark.parametrize("damage", ["half", "header", "pages"])
def test_damage_while_in_use(home: Path, damage: str) -> None:
    """Reads of the damaged part raise an error; the file stays in place until the next start."""
    DAMAGE[damage](home / "headscope.db")
    with pytest.raises(DatabaseDamaged):
        JobDatabase(Database(home / "headscope.db")).get_many([name(number) for number in range(20)])
    assert not quarantined(home)


def test_a_table_that_is_gone(home: Path) -> None:
    """A table removed while in use is reported as damage."""
    database = JobDatabase(Database(home / "headscope.db"))
    with database._database.change() as connection:
        connection.exec_driver_sql("DROP TABLE jobs")
    with pytest.raises(DatabaseDamaged):
        database.waiting()


def test_a_file_that_cannot_be_opened(tmp_path: Path) -> None:
    """It is not reported as damaged."""
    with pytest.raises(StoreUnavailable):
        JobDatabase(Database(tmp_path / "absent" / "headscope.db")).waiting()


def test_a_full_database(home: Path) -> None:
    database = JobDatabase(Database(home / "headscope.db"))
    with database._database.read() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StorageFull):
        database.enqueue([Work(name(100), "x" * 100 * PAGE)])
    assert database.waiting() == 20


def test_a_newer_database_is_left_alone(home: Path) -> None:
    """An older version refuses to start, and quarantines nothing."""
    with closing(sqlite3.connect(home / "headscope.db")) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(HeadscopeError, match="a newer version of Headscope"):
        service(home)
    assert not quarantined(home)


def test_a_data_directory_of_an_earlier_version(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The server starts, says what it does not read, and leaves it alone; stored results are found again."""
    (home / "headscope.db").unlink()
    for name_ in EARLIER:
        (home / name_).write_bytes(b"of an earlier version")
    again = service(home)
    told = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert told == [f"{name_} in HEADSCOPE_HOME is of an earlier version. {EARLIER[name_]}" for name_ in EARLIER]
    assert {(home / name_).read_bytes() for name_ in EARLIER} == {b"of an earlier version"}
    assert again.results.usage()[0] == RESULTS
