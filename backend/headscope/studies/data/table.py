"""Files as tables: columns, and records with a value for each of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...core.text import Span
from ...errors import InvalidDataset
from .dataset import Role

# First records, which determine the roles of columns.
SAMPLE_RECORDS = 100
MAX_COLUMNS = 1000
MAX_NAME_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class TableRecord:
    """One record. `values` by column are text, numbers, or lists of them; `problem` is the reason why it cannot be used.

    `spans` are the words that lists of tags belong to, as [start, end) in the column `text`, if the format defines them.
    """

    number: int
    values: Mapping[str, Any] = field(default_factory=dict)
    problem: str | None = None
    spans: tuple[Span, ...] | None = None


@dataclass(frozen=True, slots=True)
class DataTable:
    """A table of a file. `records(columns)` reads it from the start and yields at least these columns. The format determines the roles of `fixed` columns."""

    columns: tuple[str, ...]
    records: Callable[[Collection[str]], Iterator[TableRecord]]
    encoding: str
    fixed: Mapping[Role, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Format:
    """A file format. `open(path, wanted)` raises InvalidDataset; `wanted` are the columns chosen by the caller, by role."""

    name: str
    title: str
    suffixes: tuple[str, ...]
    open: Callable[[Path, Mapping[Role, str]], DataTable]


def check_columns(columns: Collection[str]) -> tuple[str, ...]:
    """Return the names, with duplicates numbered: `name`, `name (2)`. Raises InvalidDataset for too many or too long names."""
    if len(columns) > MAX_COLUMNS:
        raise InvalidDataset(f"The file has {len(columns)} columns; at most {MAX_COLUMNS} can be read.")
    unique: list[str] = []
    for place, column in enumerate(columns, 1):
        if len(column) > MAX_NAME_CHARACTERS:
            raise InvalidDataset(
                f"The name of column {place} has {len(column)} characters, more than {MAX_NAME_CHARACTERS}. Is the first line a heading, and is this the file's format?"
            )
        name, count = column, 1
        while name in unique:
            count += 1
            name = f"{column} ({count})"
        unique.append(name)
    return tuple(unique)
