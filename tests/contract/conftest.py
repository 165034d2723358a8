"""Both records, for tests that hold for either."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headscope.jobs import Record, SqliteRecord
from tests.contract.records import Open


@pytest.fixture(params=["sqlite"])
def open_record(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Opens the same empty record each time, as another process would."""
    opened: list[Record] = []

    def open_() -> Record:
        opened.append(SqliteRecord(tmp_path / "jobs.db"))
        return opened[-1]

    yield open_
    for record in opened:
        record.close()


@pytest.fixture
def record(open_record: Open) -> Record:
    """An empty record."""
    return open_record()
