"""The index of a store, on both databases: it follows what happens to the entries, and reading costs no write."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from headscope.database import tables
from headscope.store import Results, index
from tests.contract.test_store import age, check, forget, name, place, results, write
from tests.support.stores import Place

__all__ = ["place", "results"]


def test_lost_index_is_made_again(results: Results, place: Place) -> None:
    """Without an index results are still readable. Tidying indexes them by age and quarantines damaged ones."""
    for number in range(4):
        write(results, number)
    each = results.usage()[1] // 4
    forget(place)
    assert results.usage() == (0, 0)
    for number in range(4):
        check(results, number)
    manifest = place.file(name(3), "manifest.json")
    place.files.pipe_file(manifest, place.files.cat_file(manifest)[:-1])
    again = place.open(each * 7 // 2)
    again.tidy()
    assert again.usage()[0] == 3
    assert [again.has(name(number)) for number in range(4)] == [True, True, True, False]
    write(again, 4)
    assert [again.has(name(number)) for number in range(3)] == [False, True, True]


@pytest.mark.parametrize("place", ["folder"], indirect=True)
def test_an_earlier_turn_completes_nothing(results: Results, place: Place) -> None:
    """If the database was emptied while one process was tidying, and another one has begun since, the index is not complete yet."""
    write(results, 1)
    early, late = place.open()._index, place.open()._index
    assert early.acquire_turn()
    forget(place)
    assert late.acquire_turn()
    early.mark_complete()
    assert results.has(name(1))
    late.mark_complete()
    assert not results.has(name(1))  # what it has not indexed is not there


def test_tidy_forgets_what_is_gone(results: Results, place: Place) -> None:
    """Results that were removed by hand leave the index."""
    write(results, 1)
    write(results, 2)
    place.files.rm(place.file(name(1), "manifest.json").rpartition("/")[0], recursive=True)
    place.open().tidy()
    assert results.usage()[0] == 1
    assert results.get(name(1)) is None
    check(results, 2)


@pytest.mark.parametrize("place", ["local", "folder"], indirect=True)
def test_reading_writes_nothing(results: Results, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Uses are collected in memory, and written with the next entry, by tidying, or after some seconds."""
    for number in (1, 2, 3):
        write(results, number)

    def last_uses() -> list[float]:
        with place.facts.read() as connection:
            mine = sa.select(tables.results.c.used).where(tables.results.c.store == results._index._store)
            return list(connection.execute(mine.order_by(tables.results.c.id)).scalars())

    age(results, [1, 2, 3])
    old = last_uses()
    for number in (1, 2):
        check(place.open(), number)
        results.get(name(number))
    assert last_uses() == old
    results.tidy()
    assert [now > before for now, before in zip(last_uses(), old, strict=True)] == [True, True, False]
    monkeypatch.setattr(index, "USES_SECONDS", 0.0)
    results.get(name(3))
    assert last_uses()[2] > old[2]


@pytest.mark.parametrize("place", ["local", "folder"], indirect=True)
def test_far_from_the_quota_nothing_is_counted(results: Results, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first entry is counted, and others once they may use up the quota."""
    monkeypatch.setattr(index, "COUNT_SECONDS", 3600.0)
    counts: list[str] = []

    def note(_: object, __: object, statement: str, *___: object) -> None:
        if "sum(" in statement:
            counts.append(statement)

    sa.event.listen(sa.Engine, "before_cursor_execute", note)
    try:
        for number in range(4):
            write(results, number)
        assert len(counts) == 1
        size = results.usage()[1] // 4
        few = place.open(size * 6)
        counts.clear()
        for number in range(4, 12):
            write(few, number)
            assert few.usage()[1] <= size * 6.5
        assert len(counts) >= 8 + 6  # of these, eight are of usage()
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", note)


@pytest.mark.parametrize("place", ["local", "folder"], indirect=True)
def test_many_are_evicted_by_short_statements(results: Results, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the quota was lowered, all that is beyond it goes at once; databases limit the values of a statement."""
    monkeypatch.setattr(index, "DELETED", 2)
    for number in range(7):
        write(results, number)
    size = results.usage()[1] // 7
    values: list[int] = []

    def note(_: object, __: object, statement: str, given: Any, *___: object) -> None:
        if statement.startswith("DELETE FROM results"):
            values.append(len(given))

    sa.event.listen(sa.Engine, "before_cursor_execute", note)
    try:
        write(place.open(size * 5 // 2), 7)
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", note)
    assert [results.has(name(number)) for number in range(8)] == [False] * 6 + [True] * 2
    assert values[:3] == [3, 3, 3]  # two entries and the name of the store
    assert max(values) == 3
