"""Parquet: read in small batches, and of its columns only those that are needed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...errors import InvalidDataset
from ..dataset import Role
from ..table import Format, Record, Table, check_columns

BATCH = 256


def _open(path: Path, wanted: Mapping[Role, str]) -> Table:
    import pyarrow.parquet as pq

    with path.open("rb") as file:
        if file.read(4) == b"PARE":
            raise InvalidDataset("The Parquet file is encrypted. Save it without encryption.")
    with _reading(), pq.ParquetFile(path) as file:
        columns = check_columns(file.schema_arrow.names)
        usable = tuple(name for name, type_ in zip(columns, file.schema_arrow.types, strict=True) if _usable(type_))
    if len(set(columns)) != len(set(file.schema_arrow.names)):
        raise InvalidDataset("The Parquet file has two columns of one name. Rename one of them.")

    def records(needed: Collection[str]) -> Iterator[Record]:
        number = 0
        chosen = [name for name in usable if name in needed]
        with _reading(), pq.ParquetFile(path) as file:
            for batch in file.iter_batches(BATCH, columns=chosen, use_threads=False):
                for values in batch.to_pylist():
                    number += 1
                    yield Record(number, values)

    return Table(columns, records, "Parquet")


def _usable(type_: Any) -> bool:
    """Text, numbers, and lists of them; whatever else a file holds, such as images, is never read."""
    from pyarrow import types

    if types.is_dictionary(type_):
        return _usable(type_.value_type)
    if types.is_list(type_) or types.is_large_list(type_) or types.is_fixed_size_list(type_):
        return _usable(type_.value_type) and not types.is_nested(type_.value_type)
    plain = (types.is_string, types.is_large_string, types.is_string_view, types.is_integer)
    return any(kind(type_) for kind in (*plain, types.is_floating, types.is_boolean, types.is_null))


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
