"""Both records, for tests that hold for either."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from headscope.jobs import Record, RedisRecord, SqliteRecord
from tests.broker import Broker
from tests.contract.records import Open


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """A Redis for records, each under a prefix of its own."""
    with TemporaryDirectory() as folder, Broker(Path(folder)) as running:
        yield running


@pytest.fixture(params=["sqlite", "redis"])
def open_record(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Opens the same empty record each time, as another process would."""
    opened: list[Record] = []
    name = uuid.uuid4().hex
    url = request.getfixturevalue("broker").url if request.param == "redis" else ""

    def open_() -> Record:
        opened.append(RedisRecord(url, prefix=f"{name}:") if url else SqliteRecord(tmp_path / "jobs.db"))
        return opened[-1]

    yield open_
    for record in opened:
        record.close()


@pytest.fixture
def record(open_record: Open) -> Record:
    """An empty record."""
    return open_record()
