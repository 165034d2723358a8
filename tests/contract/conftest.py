"""Fixtures for tests that run on both job databases and on every kind of store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headscope.jobs import JobDatabase
from tests.contract.job_databases import Open, Place, prepare
from tests.support.compose import Redis, database_server, redis_server
from tests.support.postgres import Postgres
from tests.support.stores import object_store


@pytest.fixture(scope="session")
def broker() -> Iterator[Redis]:
    """A Redis."""
    with redis_server() as running:
        yield running


@pytest.fixture(scope="session")
def buckets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """An object store."""
    with object_store(tmp_path_factory.mktemp("buckets")):
        yield


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL with the tables."""
    with database_server("-c", "fsync=off") as running:
        prepare(running.url)
        yield running


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """The location of an empty job database."""
    if request.param == "sqlite":
        prepare(tmp_path / "headscope.db")
        return Place(tmp_path / "headscope.db")
    found = Place(request.getfixturevalue("postgres").url)
    found.clear()
    return found


@pytest.fixture
def open_database(place: Place) -> Iterator[Open]:
    """Open the same job database, as another process would."""
    opened: list[JobDatabase] = []

    def open_() -> JobDatabase:
        opened.append(place.open())
        return opened[-1]

    yield open_
    for database in opened:
        database.close()


@pytest.fixture
def database(open_database: Open) -> JobDatabase:
    """An empty job database."""
    return open_database()
