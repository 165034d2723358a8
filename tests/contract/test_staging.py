"""Unfinished files of killed or paused workers are removed as soon as their attempt has ended."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest

from headscope.errors import HeadscopeError
from headscope.store import Results
from headscope.store.staging import staging_name
from tests.support.stores import KINDS, Place, new_place

from .test_store import DOCUMENT, SHAPES, check, name, write


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """An empty store of each kind."""
    return new_place(request.param, request, tmp_path)


@pytest.fixture
def results(place: Place) -> Results:
    """The store."""
    return place.open()


def test_discards_what_ended_attempts_left(results: Results, place: Place) -> None:
    """Folders of an earlier run, of a job that has ended and of one that is unknown go at once; the current run's and others' stay.

    A writer that was paused cannot publish: the result is that of the run that took over.
    """
    with results.writer(name(1), (name(1), 3)) as late:
        late.open(SHAPES)
        for job, run in ((name(1), 7), (name(2), 4), (name(3), 5)):
            (results.staging / staging_name((job, run))).mkdir()
        (results.staging / "export-abc").write_bytes(b"half")
        asked: list[set[str]] = []

        def running(ids: Collection[str]) -> dict[str, int]:
            asked.append(set(ids))
            return {name(1): 7, name(3): 6}

        place.open().discard_ended(running)
        assert asked == [{name(1), name(2), name(3)}]
        left = sorted(path.name.rpartition(".")[0] for path in results.staging.iterdir())
        assert left == ["", f"{name(1)}.7"]
        write(results, 1)
        with pytest.raises(HeadscopeError):
            late.finish({**DOCUMENT, "number": 2}, {})
    check(results, 1)
    place.open().discard_ended(lambda _: {})
    assert [path.name for path in results.staging.iterdir()] == ["export-abc"]
