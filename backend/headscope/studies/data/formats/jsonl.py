"""JSON Lines: one JSON object per line, its names the columns."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from ....errors import InvalidDataset
from ..dataset import Role
from ..table import LOOKED_AT, DataTable, Format, TableRecord, check_columns
from .lines import TextLine, encoding, lines

NOT_JSON = "The line is not valid JSON."
NO_OBJECT = "The line is not a JSON object."
TWICE = "The object has the same name twice."
NO_NAME = "A name in the object is not text."


class _Unusable(ValueError):
    """An object that can be parsed but not used; why."""


def _open(path: Path, wanted: Mapping[Role, str]) -> DataTable:
    looked_at = list(islice(_records(path), LOOKED_AT))
    names = dict.fromkeys(name for record in looked_at for name in record.values)
    if not names and _is_one_document(path):
        raise InvalidDataset("The file is one JSON document. Save it as JSON Lines: one object per line.")

    def records(_: Collection[str]) -> Iterator[TableRecord]:
        return _records(path)

    return DataTable(check_columns(names), records, encoding(path))


def _is_one_document(path: Path) -> bool:
    first = next((line.text.strip() for line in islice(lines(path), LOOKED_AT) if line.text.strip()), "")
    return first[:1] == "[" or first == "{"


def _records(path: Path) -> Iterator[TableRecord]:
    for line in lines(path):
        if line.problem or line.text.strip():
            yield _record(line)


def _record(line: TextLine) -> TableRecord:
    if line.problem:
        return TableRecord(line.number, problem=line.problem)
    try:
        found = json.loads(line.text, object_pairs_hook=_object)
    except _Unusable as error:
        return TableRecord(line.number, problem=str(error))
    except (ValueError, RecursionError):  # numbers with thousands of digits are a ValueError, too
        return TableRecord(line.number, problem=NOT_JSON)
    return TableRecord(line.number, found) if isinstance(found, dict) else TableRecord(line.number, problem=NO_OBJECT)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _Unusable(TWICE)
    if any("\ud800" <= char <= "\udfff" for name in found for char in name):
        raise _Unusable(NO_NAME)
    return found


JSONL = Format("jsonl", "JSON Lines", (".jsonl", ".ndjson", ".json"), _open)
