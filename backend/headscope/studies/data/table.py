"""A file as a table: its columns, and records that hold a value for each of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...errors import InvalidDataset
from .dataset import Role

# Records that are looked at before it is decided what the columns are.
LOOKED_AT = 100
MOST_COLUMNS = 1000
LONGEST_NAME = 200

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class TableRecord:
    """One record. `values` by column: text, numbers, or lists of them; `problem` says why it can't be used.

    `spans` are the words to which lists of tags belong, as [start, end) in the column `text`, where the format knows them.
    """

    number: int
    values: Mapping[str, Any] = field(default_factory=dict)
    problem: str | None = None
    spans: tuple[Span, ...] | None = None


@dataclass(frozen=True, slots=True)
class DataTable:
    """`records(columns)` begins anew each time and gives at least those columns. `fixed` are columns that the format itself names a role for."""

    columns: tuple[str, ...]
    records: Callable[[Collection[str]], Iterator[TableRecord]]
    encoding: str
    fixed: Mapping[Role, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Format:
    """A kind of file. `open(path, wanted)` raises InvalidDataset; `wanted` are the columns that the caller named, by role."""

    name: str
    title: str
    suffixes: tuple[str, ...]
    open: Callable[[Path, Mapping[Role, str]], DataTable]


def check_columns(columns: Collection[str]) -> tuple[str, ...]:
    """The names, told apart where two are alike: `name`, `name (2)`. Raises InvalidDataset for more or longer names than anybody means."""
    if len(columns) > MOST_COLUMNS:
        raise InvalidDataset(f"The file has {len(columns)} columns; at most {MOST_COLUMNS} can be read.")
    told: list[str] = []
    for place, column in enumerate(columns, 1):
        if len(column) > LONGEST_NAME:
            raise InvalidDataset(
                f"The name of column {place} has {len(column)} characters, more than {LONGEST_NAME}. Is the first line a heading, and is this the file's format?"
            )
        name, count = column, 1
        while name in told:
            count += 1
            name = f"{column} ({count})"
        told.append(name)
    return tuple(told)
