"""JSON Lines: one JSON object per line, whose keys are the columns."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from ....errors import InvalidDataset
from ..dataset import Role
from ..table import SAMPLE_RECORDS, DataTable, Format, TableRecord, check_columns
from .lines import TextLine, encoding, filled_lines, lines

NOT_JSON = "The line is not valid JSON."
NO_OBJECT = "The line is not a JSON object."
DUPLICATE_KEY = "The object has a duplicate key."
INVALID_KEY = "A key of the object is not valid text."


class _InvalidObject(ValueError):
    """The reason why a parsed object cannot be used."""


def _open(path: Path, wanted: Mapping[Role, str]) -> DataTable:
    sample = islice(_records(path), SAMPLE_RECORDS)
    names = dict.fromkeys(name for record in sample for name in record.values)
    if _is_one_document(path, has_rows=bool(names)):
        raise InvalidDataset("The file is one JSON document. Save it as JSON Lines: one object per line.")
    return DataTable(check_columns(names), lambda _: _records(path), encoding(path))


def _is_one_document(path: Path, *, has_rows: bool) -> bool:
    """Return whether a file is not a document per line. The last object of an array may be alone on its line, and look like a row."""
    first = next((line.text.strip() for line in islice(lines(path), SAMPLE_RECORDS) if line.text.strip()), "")
    if first.startswith("["):
        return not has_rows or first.endswith(("[", ","))
    return not has_rows and first == "{"


def _records(path: Path) -> Iterator[TableRecord]:
    return map(_record, filled_lines(path))


def _record(line: TextLine) -> TableRecord:
    if line.problem:
        return TableRecord(line.number, problem=line.problem)
    try:
        found = json.loads(line.text, object_pairs_hook=_object)
    except _InvalidObject as error:
        return TableRecord(line.number, problem=str(error))
    except (ValueError, RecursionError):  # also numbers with thousands of digits
        return TableRecord(line.number, problem=NOT_JSON)
    return TableRecord(line.number, found) if isinstance(found, dict) else TableRecord(line.number, problem=NO_OBJECT)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _InvalidObject(DUPLICATE_KEY)
    if any("\ud800" <= char <= "\udfff" for name in found for char in name):
        raise _InvalidObject(INVALID_KEY)
    return found


JSONL = Format("jsonl", "JSON Lines", (".jsonl", ".ndjson", ".json"), _open)
