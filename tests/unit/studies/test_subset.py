"""Parts of data sets drawn by a seed."""

from __future__ import annotations

from collections import Counter

from headscope.studies.data.dataset import Row
from headscope.studies.plan import select_rows

ROWS = [Row(number, f"Text {number}.") for number in range(1, 1001)]


def _numbers(limit: int | None, seed: int = 0) -> list[int]:
    return [row.number for row in select_rows(ROWS, limit, seed)]


def test_same_seed_same_rows_in_order() -> None:
    """As many as were asked for, each once, in the order of the file; another seed draws others."""
    drawn = _numbers(100)
    assert drawn == _numbers(100) == sorted(set(drawn))
    assert len(drawn) == 100
    assert drawn != _numbers(100, seed=1)


def test_all_rows() -> None:
    """Without a limit, or with one that is not reached, every row."""
    every = [row.number for row in ROWS]
    assert _numbers(None) == _numbers(1000) == _numbers(5000) == every
    assert _numbers(0) == []


def test_smaller_limits_are_parts_of_larger_ones() -> None:
    """A study of more rows goes on where one of fewer ended."""
    assert set(_numbers(10)) < set(_numbers(50)) < set(_numbers(500))


def test_every_row_is_as_likely() -> None:
    """Over 400 seeds every row is drawn about as often: a tenth of the time, within six standard deviations."""
    counts = Counter(number for seed in range(400) for number in _numbers(100, seed))
    assert len(counts) == 1000
    assert all(abs(count - 40) < 6 * 6 for count in counts.values())
