"""Comma- and tab-separated values. CSV has quotes; TSV is as GLUE writes it: a quote is a character like any other."""

from __future__ import annotations

import csv
import re
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from ....errors import InvalidDataset
from ..columns import KNOWN
from ..dataset import Role
from ..table import LOOKED_AT, DataTable, Format, TableRecord, check_columns
from .lines import LINE_BYTES, TextLine, encoding, lines

UNNAMED = re.compile(r"column [1-9]\d{0,3}")
NUMBER = re.compile(r"[+-]?\d+([.,]\d+)?([eE][+-]?\d+)?")
# A heading is short: no more words and characters than these.
HEADING_WORDS, HEADING_CHARACTERS = 4, 40
# What separates columns where it is not the comma; tried on so many lines.
SEPARATORS, TRIED = (";", "\t", "|"), 5
OPEN_QUOTE = f'A quote (") is opened and not closed within {LINE_BYTES} bytes.'
QUOTES = 'The quotes (") are not in order: one inside a quoted value is written twice, and after the closing one the value ends.'


@dataclass(frozen=True, slots=True)
class Cells:
    """The cells of one record, which begins on that line."""

    number: int
    cells: list[str]
    problem: str | None = None


Rows = Callable[[Path], Iterator[Cells]]


def _tabs(path: Path) -> Iterator[Cells]:
    for line in lines(path):
        if line.problem or line.text.strip():
            yield Cells(line.number, line.text.split("\t"), line.problem)


def _commas(path: Path) -> Iterator[Cells]:
    waiting, separator = _Waiting(lines(path)), _separator(path)
    while (first := waiting.next()) is not None:
        if first.problem:
            yield Cells(first.number, [], first.problem)
        elif first.text.strip():
            yield _quoted(first, waiting, separator)


class _Waiting:
    """Lines that come, and some that came already and are looked at again."""

    def __init__(self, coming: Iterator[TextLine]) -> None:
        self._coming, self._again = coming, deque[TextLine]()

    def next(self) -> TextLine | None:
        return self._again.popleft() if self._again else next(self._coming, None)

    def give_back(self, taken: list[TextLine]) -> None:
        self._again.extendleft(reversed(taken))


def _quoted(first: TextLine, waiting: _Waiting, separator: str) -> Cells:
    """The record that begins on a line, over several where a quoted value holds line ends. What a quote left open would swallow is given back."""
    taken: list[TextLine] = []

    def texts() -> Iterator[str]:
        size, line = 0, first
        while size <= LINE_BYTES:
            yield f"{line.text}\n"
            size += len(line.text) + 1
            following = waiting.next()
            if following is None:
                return
            taken.append(following)
            if following.problem:
                return
            line = following

    try:
        return Cells(first.number, next(csv.reader(texts(), delimiter=separator, strict=True)))
    except csv.Error as error:
        waiting.give_back(taken)
        return Cells(first.number, [], OPEN_QUOTE if taken or "end of data" in str(error) else QUOTES)


def _separator(path: Path) -> str:
    """The comma, or what else every one of the first lines has equally often."""
    first = [line.text for line in islice(lines(path), TRIED) if line.text.strip()]
    if not first or any("," in text for text in first[:1]):
        return ","
    even = (one for one in SEPARATORS if first[0].count(one) and len({text.count(one) for text in first}) == 1)
    return next(even, ",")


def _table(path: Path, wanted: Mapping[Role, str], rows: Rows) -> DataTable:
    first = list(islice(rows(path), LOOKED_AT))
    if first and first[0].problem:
        raise InvalidDataset(f"The first line can't be read, so the columns are not known. {first[0].problem}")
    usable = [row.cells for row in first if not row.problem]
    headed = bool(usable) and _has_heading(usable, wanted)
    width = len(usable[0]) if usable else 0
    numbered = (f"column {place}" for place in range(1, width + 1))
    names = [name.strip() for name in usable[0]] if headed else list(numbered)
    columns = check_columns([name or f"column {place}" for place, name in enumerate(names, 1)])

    def records(_: Collection[str]) -> Iterator[TableRecord]:
        for row in islice(rows(path), 1 if headed else 0, None):
            yield _record(row, columns)

    return DataTable(columns, records, encoding(path))


def _record(row: Cells, columns: tuple[str, ...]) -> TableRecord:
    if row.problem:
        return TableRecord(row.number, problem=row.problem)
    if len(row.cells) != len(columns):
        return TableRecord(
            row.number, problem=f"The row has {len(row.cells)} columns; the first one has {len(columns)}."
        )
    return TableRecord(row.number, dict(zip(columns, row.cells, strict=True)))


def _has_heading(rows: list[list[str]], wanted: Mapping[Role, str]) -> bool:
    """Whether the first row names the columns. What the caller calls them decides, where it can."""
    first = [cell.strip() for cell in rows[0]]
    if wanted and all(UNNAMED.fullmatch(name) for name in wanted.values()):
        return False
    if set(wanted.values()) & set(first):
        return True
    if any(NUMBER.fullmatch(cell) or not _may_be_heading(cell) for cell in first):
        return False
    if any(cell.lower() in KNOWN for cell in first):
        return True
    below = [row for row in rows[1:] if len(row) == len(first)]
    numbers = (all(NUMBER.fullmatch(row[place].strip()) for row in below) for place in range(len(first)))
    return bool(below) and any(numbers)


def _may_be_heading(cell: str) -> bool:
    return bool(cell) and len(cell) <= HEADING_CHARACTERS and len(cell.split()) <= HEADING_WORDS


CSV = Format("csv", "Comma-separated values", (".csv",), lambda path, wanted: _table(path, wanted, _commas))
TSV = Format("tsv", "Tab-separated values", (".tsv", ".tab"), lambda path, wanted: _table(path, wanted, _tabs))
