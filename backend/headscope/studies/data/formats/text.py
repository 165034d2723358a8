"""Plain text: one input per line that is not blank."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from ..dataset import Role
from ..table import DataTable, Format, TableRecord
from .lines import encoding, filled_lines


def _open(path: Path, wanted: Mapping[Role, str]) -> DataTable:
    def records(_: Collection[str]) -> Iterator[TableRecord]:
        return (TableRecord(line.number, {"text": line.text}, line.problem) for line in filled_lines(path))

    return DataTable(("text",), records, encoding(path), {"text": "text"})


TEXT = Format("text", "Plain text", (".txt", ".text"), _open)
