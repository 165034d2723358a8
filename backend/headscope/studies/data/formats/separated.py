"""Comma- and tab-separated values. CSV has quotes; in TSV, as in GLUE, a quote is an ordinary character."""

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
from ..table import SAMPLE_RECORDS, DataTable, Format, TableRecord, check_columns
from .lines import LINE_BYTES, TextLine, encoding, filled_lines, lines

UNNAMED = re.compile(r"column [1-9]\d{0,3}")
NUMBER = re.compile(r"[+-]?\d+([.,]\d+)?([eE][+-]?\d+)?")
# Maximum length of a heading.
HEADING_WORDS, HEADING_CHARACTERS = 4, 40
# Separators other than the comma, and the number of lines that they are tried on.
SEPARATORS, TRIED = (";", "\t", "|"), 5
# Values are limited by lines alone: a record has at most two lines of the largest size, and TRIED ones are read at once. The process may have raised the limit.
csv.field_size_limit(max(csv.field_size_limit(), (TRIED + 1) * LINE_BYTES))
OPEN_QUOTE = f'A quote (") is not closed within {LINE_BYTES} bytes.'
QUOTES = 'Invalid quotes ("): double a quote inside a quoted value, and end the value after the closing quote.'
RETURN = "The line contains a carriage return (CR) outside of quotes, in a file whose lines end in LF."


@dataclass(frozen=True, slots=True)
class CellRecord:
    """The cells of one record, and the line on which it begins."""

    number: int
    cells: list[str]
    problem: str | None = None


RecordReader = Callable[[Path], Iterator[CellRecord]]


def _tabs(path: Path) -> Iterator[CellRecord]:
    return (CellRecord(line.number, line.text.split("\t"), line.problem) for line in filled_lines(path))


def _commas(path: Path) -> Iterator[CellRecord]:
    remaining, separator = _PushbackLines(lines(path)), _separator(path)
    while (first := remaining.next()) is not None:
        if first.problem:
            yield CellRecord(first.number, [], first.problem)
        elif first.text.strip():
            yield _read_quoted(first, remaining, separator)


class _PushbackLines:
    """Lines of a file; lines that were read can be pushed back."""

    def __init__(self, unread: Iterator[TextLine]) -> None:
        self._unread, self._pushed = unread, deque[TextLine]()

    def next(self) -> TextLine | None:
        return self._pushed.popleft() if self._pushed else next(self._unread, None)

    def push_back(self, taken: list[TextLine]) -> None:
        self._pushed.extendleft(reversed(taken))


def _read_quoted(first: TextLine, remaining: _PushbackLines, separator: str) -> CellRecord:
    """Read the record that begins on a line; quoted values may span lines. Lines after a quote that is never closed are pushed back."""
    taken: list[TextLine] = []

    def texts() -> Iterator[str]:
        size, line = 0, first
        while size <= LINE_BYTES:
            yield f"{line.text}\n"
            size += len(line.text) + 1
            following = remaining.next()
            if following is None:
                return
            taken.append(following)
            if following.problem:
                return
            line = following

    try:
        return CellRecord(first.number, next(csv.reader(texts(), delimiter=separator, strict=True)))
    except csv.Error as error:
        remaining.push_back(taken)
        return CellRecord(first.number, [], _problem(str(error), several=bool(taken)))


def _problem(message: str, *, several: bool) -> str:
    """Return why a record that begins on a line, and spans `several` lines or not, cannot be read, from the message of the csv module."""
    if "new-line character" in message:
        return RETURN
    return OPEN_QUOTE if several or "end of data" in message else QUOTES


def _separator(path: Path) -> str:
    """Return the separator: the comma, or another one that occurs equally often, outside of quotes, in each of the first records."""
    first = [line.text for line in islice(lines(path), TRIED) if line.text.strip()]
    if not first or _widths(first[:1], ",") != {1}:
        return ","
    return next((each for each in SEPARATORS if len(found := _widths(first, each)) == 1 and found != {1}), ",")


def _widths(texts: list[str], separator: str) -> set[int]:
    """Return how many cells records have, of lines of which the last one may be the beginning of a record."""
    # The csv module refuses a carriage return; its record is reported when it is read.
    plain = [text.replace("\r", " ") + "\n" for text in texts]
    found = [len(cells) for cells in csv.reader(plain, delimiter=separator)]
    cut = len(found) > 1 and sum(text.count('"') for text in texts) % 2 == 1
    return set(found[:-1] if cut else found)


def _table(path: Path, wanted: Mapping[Role, str], rows: RecordReader) -> DataTable:
    first = list(islice(rows(path), SAMPLE_RECORDS))
    if first and first[0].problem:
        raise InvalidDataset(f"The first line cannot be read, so the columns are unknown. {first[0].problem}")
    usable = [row.cells for row in first if not row.problem]
    headed = bool(usable) and _has_heading(usable, wanted)
    names = [cell.strip() if headed else "" for cell in usable[0]] if usable else []
    columns = check_columns([name or f"column {place}" for place, name in enumerate(names, 1)])

    def records(_: Collection[str]) -> Iterator[TableRecord]:
        return (_record(row, columns) for row in islice(rows(path), 1 if headed else 0, None))

    return DataTable(columns, records, encoding(path))


def _record(row: CellRecord, columns: tuple[str, ...]) -> TableRecord:
    if row.problem:
        return TableRecord(row.number, problem=row.problem)
    if len(row.cells) != len(columns):
        return TableRecord(
            row.number, problem=f"The row has {len(row.cells)} columns; the first row has {len(columns)}."
        )
    return TableRecord(row.number, dict(zip(columns, row.cells, strict=True)))


def _has_heading(rows: list[list[str]], wanted: Mapping[Role, str]) -> bool:
    """Return whether the first row names the columns. The names that the caller uses decide, if they can."""
    first = [cell.strip() for cell in rows[0]]
    if wanted and all(UNNAMED.fullmatch(name) for name in wanted.values()):
        return False
    if set(wanted.values()) & set(first):
        return True
    if any(NUMBER.fullmatch(cell) for cell in first):
        return False
    if any(
        cell.lower() in KNOWN for cell in first
    ):  # others may be questions of a survey, or have no name, as an index has not
        return True
    if not all(_may_be_heading(cell) for cell in first):
        return False
    below = [row for row in rows[1:] if len(row) == len(first)]
    numbers = (all(NUMBER.fullmatch(row[place].strip()) for row in below) for place in range(len(first)))
    return bool(below) and any(numbers)


def _may_be_heading(cell: str) -> bool:
    return bool(cell) and len(cell) <= HEADING_CHARACTERS and len(cell.split()) <= HEADING_WORDS


CSV = Format("csv", "Comma-separated values", (".csv",), lambda path, wanted: _table(path, wanted, _commas))
TSV = Format("tsv", "Tab-separated values", (".tsv", ".tab"), lambda path, wanted: _table(path, wanted, _tabs))
