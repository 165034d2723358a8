"""Tables as Arrow streams, which pandas, polars, DuckDB, R and pyarrow read without parsing text."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

from .lazy import pa

MEDIA = "application/vnd.apache.arrow.stream"


def to_stream(
    columns: Mapping[str, Any], metadata: Mapping[str, object], units: Mapping[str, str] | None = None
) -> bytes:
    """Return a table as one Arrow stream; NaN is null. Keys of the `metadata` of its schema get the prefix `headscope.`; `units` are those of columns."""
    arrays = {name: pa.array(values, from_pandas=True) for name, values in columns.items()}
    of_field = {name: {"unit": unit} for name, unit in (units or {}).items()}
    fields = [pa.field(name, array.type, metadata=of_field.get(name)) for name, array in arrays.items()]
    schema = pa.schema(fields, {f"headscope.{name}": str(value) for name, value in metadata.items()})
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, schema) as stream:
        stream.write_table(pa.Table.from_arrays(list(arrays.values()), schema=schema))
    return sink.getvalue()


def from_stream(body: bytes) -> Any:
    """Return the pyarrow.Table of a stream."""
    return pa.ipc.open_stream(body).read_all()
