"""Edges and measures as tables, with one row per edge or per place and the numbering of the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ...core import arrow
from ...core.arrays import Array
from ...lenses import LENSES
from ...measures.base import Measure
from ...measures.edges import StrongestEdges

# Columns for the axes of a measure. A second axis H is that of the other heads of the layer.
COLUMNS = {"L": "layer", "H": "head", "Q": "query", "K": "key"}


def edges_table(found: StrongestEdges, lens: str, layer: int, head: int) -> bytes:
    """Return edges as an Arrow stream: layer, head, query and key (int32), and weight (float32)."""
    unit = LENSES[lens].unit
    pairs = found.pairs.astype(np.int32)
    columns = {
        "layer": np.full(len(pairs), layer, np.int32),
        "head": np.full(len(pairs), head, np.int32),
        "query": pairs[:, 0],
        "key": pairs[:, 1],
        "weight": found.weights,
    }
    return arrow.to_stream(columns, {"lens": lens, "unit": unit, "total": found.total}, {"weight": unit})


def measure_table(
    measure: Measure,
    values: Array,
    axes: Sequence[str],
    numbers: Mapping[str, Sequence[int]],
    metadata: Mapping[str, str],
) -> bytes:
    """Return the values of a measure as an Arrow stream: a column for each axis (int32), then one for each entry of axis C, or one with the measure's name.

    `numbers` has the numbers along columns that do not count 0, 1, 2, ...
    """
    names = list[str]()
    for axis in axes:
        if axis != "C":
            names.append("other_head" if COLUMNS[axis] in names else COLUMNS[axis])
    units = (
        {name: measure.unit_of(name) for name in measure.columns} if "C" in axes else {measure.name: metadata["unit"]}
    )
    indices = np.indices(values.shape[: len(names)], np.int32).reshape(len(names), -1)  # [axes, n]
    places = {
        name: np.asarray(numbers[name], np.int32)[index] if name in numbers else index
        for name, index in zip(names, indices, strict=True)
    }
    entries = values.reshape(-1, len(units)).T
    return arrow.to_stream({**places, **dict(zip(units, entries, strict=True))}, metadata, units)
