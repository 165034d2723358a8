"""Parquet, read in small batches and only the columns needed. Class numbers are replaced by class names."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ....core.lazy import pa, pq
from ....errors import InvalidDataset
from ..dataset import Role
from ..table import DataTable, Format, TableRecord, check_columns

# Rows converted at a time, and bytes read at a time: a column chunk can be as large as the file.
BATCH = 256
BUFFER = 1024 * 1024


def _open(path: Path, wanted: Mapping[Role, str]) -> DataTable:
    with path.open("rb") as file:
        if file.read(4) == b"PARE":
            raise InvalidDataset("The Parquet file is encrypted. Save it without encryption.")
    with _reading(), pq.ParquetFile(path) as file:
        columns, classes = check_columns(file.schema_arrow.names), _classes(file.schema_arrow.metadata or {})
        usable = tuple(name for name, type_ in zip(columns, file.schema_arrow.types, strict=True) if _usable(type_))
    if len(set(columns)) != len(set(file.schema_arrow.names)):
        raise InvalidDataset("The Parquet file has two columns with the same name. Rename one of them.")

    def records(needed: Collection[str]) -> Iterator[TableRecord]:
        number = 0
        chosen = [name for name in usable if name in needed]
        with _reading(), pq.ParquetFile(path, pre_buffer=False, buffer_size=BUFFER) as file:
            for batch in file.iter_batches(BATCH, columns=chosen, use_threads=False):
                for values in batch.to_pylist():
                    number += 1
                    yield TableRecord(
                        number, {name: _name_classes(value, classes.get(name)) for name, value in values.items()}
                    )

    return DataTable(columns, records, "Parquet")


def _usable(type_: Any) -> bool:
    """Return whether a column holds text, numbers, or lists of them. Others, such as images, are never read."""
    if pa.types.is_dictionary(type_):
        return _usable(type_.value_type)
    if pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_):
        return _usable(type_.value_type) and not pa.types.is_nested(type_.value_type)
    plain = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view, pa.types.is_integer)
    return any(kind(type_) for kind in (*plain, pa.types.is_floating, pa.types.is_boolean, pa.types.is_null))


def _classes(metadata: Mapping[bytes, bytes]) -> dict[str, list[str]]:
    """Return the class names of columns, as the library `datasets` stores them in the schema's metadata."""
    try:
        features = json.loads(metadata.get(b"huggingface", b"{}"))["info"]["features"]
        found = {name: each.get("names") or each.get("feature", {}).get("names") for name, each in features.items()}
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return {}
    return {
        name: names
        for name, names in found.items()
        if isinstance(names, list) and all(isinstance(each, str) for each in names)
    }


def _name_classes(value: Any, names: list[str] | None) -> Any:
    """Replace class numbers by names, also in lists. Numbers without a name (such as -1 for a missing label) stay."""
    if names is None:
        return value
    if isinstance(value, list):
        return [_name_classes(each, names) for each in value]
    return names[value] if isinstance(value, int) and 0 <= value < len(names) else value


@contextmanager
def _reading() -> Iterator[None]:
    """Turn pyarrow's errors into InvalidDataset; running out of memory stays a MemoryError."""
    try:
        yield
    except (pa.ArrowMemoryError, MemoryError):
        raise MemoryError from None
    except (pa.ArrowException, OSError, UnicodeDecodeError, OverflowError):
        raise InvalidDataset("The file is damaged, cut off, or not a Parquet file.") from None


PARQUET = Format("parquet", "Parquet", (".parquet", ".pq"), _open)
