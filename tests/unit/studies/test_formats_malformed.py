"""Files as people really have them: each is refused in one plain sentence, or read but for rows that are counted and named."""

from __future__ import annotations

import re
import tracemalloc
from pathlib import Path

import pytest

from headscope.errors import HeadscopeError, InvalidDataset
from headscope.studies.data.dataset import Dataset
from headscope.studies.data.formats import read
from tests.support.extent import extent
from tests.support.malformed import CASES, Case

TEXT_BYTES = 32 * 1024
SENTENCES = re.compile(r"[A-Z].*[.?!]")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_what_is_said(case: Case, tmp_path: Path) -> None:
    """Nothing is lost without a word: every row is used, or bad with its number and a reason, or the file is refused."""
    path = tmp_path / case.file
    path.write_bytes(case.content())
    if case.error is not None:
        with pytest.raises(HeadscopeError) as raised:
            list(_read(case, path).rows)
        assert case.error in raised.value.detail
        assert SENTENCES.fullmatch(raised.value.detail)
        return
    dataset = _read(case, path)
    rows = list(dataset.rows)
    found = {bad.number: bad.problem for bad in dataset.bad}
    assert (len(rows), set(found)) == (case.rows, set(case.bad)), found
    assert all(part in found[number] and SENTENCES.fullmatch(found[number]) for number, part in case.bad.items()), found
    assert dataset.report()["rows"] == case.rows
    assert dataset.report()["bad_count"] == len(case.bad)
    assert case.encoding in dataset.encoding
    assert list(dataset.rows) == rows, "read again it is the same"


@pytest.mark.parametrize("case", [case for case in CASES if case.bad], ids=lambda case: case.id)
def test_bad_rows_can_be_fatal(case: Case, tmp_path: Path) -> None:
    """With bad_rows "fail" the first bad row ends it, by its number."""
    path = tmp_path / case.file
    path.write_bytes(case.content())
    with pytest.raises(InvalidDataset, match=rf"Row {min(case.bad)} cannot be used\. ") as raised:
        list(read(path, columns=case.columns, bad_rows="fail", text_bytes=TEXT_BYTES).rows)
    assert raised.value.actual == min(case.bad)


def test_there_are_fifty() -> None:
    """The corpus is not thinned out, and no two cases have one name."""
    assert len({case.id for case in CASES}) == len(CASES) >= 50


def test_a_line_of_a_gigabyte_is_not_kept(tmp_path: Path) -> None:
    """A line far beyond the limit is passed over in bounded memory, and the line after it is read."""
    path = tmp_path / "a.txt"
    with path.open("wb") as file:
        file.write(b"One.\n" + b"x" * 100_000)
        file.seek(extent(1024**3, 128 * 1024**2), 1)  # a hole: it takes no room on the disk
        file.write(b"\nThree.\n")
    tracemalloc.start()
    dataset = read(path)
    numbers = [row.number for row in dataset.rows]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert numbers == [1, 3]
    assert "longer than" in dataset.bad[0].problem
    assert peak < 16 * 1024**2


def test_bad_rows_beyond_the_first_hundred_are_counted(tmp_path: Path) -> None:
    """Only the first hundred are named, all are counted."""
    path = tmp_path / "a.csv"
    path.write_text("text,label\nOne.,0\n" + ",0\n" * 250)
    dataset = read(path)
    assert len(list(dataset.rows)) == 1
    assert (len(dataset.bad), dataset.bad_count, dataset.total) == (100, 250, 251)
    assert dataset.bad[-1].number == 102


def _read(case: Case, path: Path) -> Dataset:
    return read(path, format=case.format, columns=case.columns, text_bytes=TEXT_BYTES)
