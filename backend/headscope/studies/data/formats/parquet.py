"""Parquet: read in small batches, and of its columns only those that are needed. Numbers that stand for classes are read as the classes' names."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ....errors import InvalidDataset
from ..dataset import Role
from ..table import DataTable, Format, TableRecord, check_columns

# Rows that are unpacked at a time, and bytes of a column chunk that are read at a time: a column chunk can be as large as the file.
BATCH = 256
BUFFER = 1024 * 1024


def _open(path: Path, wanted: Mapping[Role, str]) -> DataTable:
    import pyarrow.parquet as pq

    with path.open("rb") as file:
        if file.read(4) == b"PARE":
            raise InvalidDataset("The Parquet file is encrypted. Save it without encryption.")
    with _reading(), pq.ParquetFile(path) as file:
        columns, classes = check_columns(file.schema_arrow.names), _classes(file.schema_arrow.metadata or {})
        usable = tuple(name for name, type_ in zip(columns, file.schema_arrow.types, strict=True) if _usable(type_))
    if len(set(columns)) != len(set(file.schema_arrow.names)):
        raise InvalidDataset("The Parquet file has two columns of one name. Rename one of them.")

    def records(needed: Collection[str]) -> Iterator[TableRecord]:
        number = 0
        chosen = [name for name in usable if name in needed]
        with _reading(), pq.ParquetFile(path, pre_buffer=False, buffer_size=BUFFER) as file:
            for batch in file.iter_batches(BATCH, columns=chosen, use_threads=False):
                for values in batch.to_pylist():
                    number += 1
                    yield TableRecord(
                        number, {name: _named(value, classes.get(name)) for name, value in values.items()}
                    )

    return DataTable(columns, records, "Parquet")


def _usable(type_: Any) -> bool:
    """Text, numbers, and lists of them; whatever else a file holds, such as images, is never read."""
    from pyarrow import types

    if types.is_dictionary(type_):
        return _usable(type_.value_type)
    if types.is_list(type_) or types.is_large_list(type_) or types.is_fixed_size_list(type_):
        return _usable(type_.value_type) and not types.is_nested(type_.value_type)
    plain = (types.is_string, types.is_large_string, types.is_string_view, types.is_integer)
    return any(kind(type_) for kind in (*plain, types.is_floating, types.is_boolean, types.is_null))


def _classes(metadata: Mapping[bytes, bytes]) -> dict[str, list[str]]:
    """The names of the classes of a column, as the library `datasets` writes them beside the schema."""
    try:
        features = json.loads(metadata.get(b"huggingface", b"{}"))["info"]["features"]
        found = {name: one.get("names") or one.get("feature", {}).get("names") for name, one in features.items()}
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return {}
    return {
        name: names
        for name, names in found.items()
        if isinstance(names, list) and all(isinstance(one, str) for one in names)
    }


def _named(value: Any, names: list[str] | None) -> Any:
    """Class numbers, or a list of them, as names; a number without a name (-1 where a label is missing) stays."""
    if names is None:
        return value
    if isinstance(value, list):
        return [_named(one, names) for one in value]
    return names[value] if isinstance(value, int) and 0 <= value < len(names) else value


@contextmanager
def _reading() -> Iterator[None]:
    """Whatever pyarrow makes of a file that is not what it says is InvalidDataset; want of memory stays that."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowMemoryError, MemoryError):
        raise MemoryError from None
    except (pa.ArrowException, OSError, UnicodeDecodeError, OverflowError):
        raise InvalidDataset("The file is damaged, cut off, or no Parquet file.") from None


PARQUET = Format("parquet", "Parquet", (".parquet", ".pq"), _open)
