"""Arrow tables of measures: a column for each axis, in the numbering of the model, and one for each entry."""

from __future__ import annotations

import numpy as np
import pytest

from headscope.api.documents.tables import measure_table
from headscope.core.arrow import from_stream
from headscope.measures import MEASURES

SIZES = {"L": 2, "H": 3, "Q": 4, "K": 5}
NUMBERS = {"layer": [4, 7], "head": [0, 2, 5], "other_head": [0, 2, 5]}


@pytest.mark.parametrize("shape", sorted({measure.shape for measure in MEASURES.values()}))
def test_every_value_is_beside_its_place(shape: str) -> None:
    """A table of each shape of a measure has every value once, beside its indices."""
    measure = next(one for one in MEASURES.values() if one.shape == shape)
    axes = shape.split()
    sizes = [SIZES.get(axis, len(measure.columns)) for axis in axes]
    values = np.arange(np.prod(sizes), dtype=np.float32).reshape(sizes)
    values[(0,) * len(sizes)] = np.nan
    table = from_stream(measure_table(measure, values, axes, NUMBERS, {"unit": measure.unit, "lens": "weights"}))
    entries = measure.columns if "C" in axes else (measure.name,)
    places = table.column_names[: -len(entries)]
    assert table.column_names[-len(entries) :] == list(entries)
    assert len(places) == len(axes) - axes.count("C")
    for row in table.to_pylist():
        index = tuple(NUMBERS[name].index(row[name]) if name in NUMBERS else row[name] for name in places)
        expected = values[index] if "C" in axes else [values[index]]
        assert [row[entry] for entry in entries] == [None if np.isnan(value) else value for value in expected]
    assert table.num_rows == np.prod([size for axis, size in zip(axes, sizes, strict=True) if axis != "C"])
    assert table.schema.field(entries[0]).metadata[b"unit"].decode() == measure.unit_of(entries[0])
    assert table.schema.metadata[b"headscope.lens"] == b"weights"
