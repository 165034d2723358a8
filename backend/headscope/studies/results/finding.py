"""Heads of a study: search by query, and the details of one head."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...core.arrays import Array
from ...core.declarations import TOKEN_AXES
from ...errors import Unsupported
from ...lenses import LENSES
from ...query.search import SearchResult, SearchSpace
from ...query.search import find as search
from ..quantities import QUANTITIES
from .summary import Stat, StudySummary

# Fields that are empty for numbers that are the same for all inputs.
FIXED: dict[str, Any] = {
    "count": 0, "inputs": 0, "std": None, "low": None, "high": None, "median": None, "median_within": None, "input_mean": None,
    "interval": None, "distribution": None, "top": [],
}  # fmt: skip


def find(summary: StudySummary, where: str, lens: str = "weights", variant: int = 0) -> SearchResult:
    """Return the heads of a variant that satisfy a query about their means over inputs, ranked. The class of a head is that of most inputs.

    Raises InvalidQuery, or Unknown for a missing variant or a measure that was not computed.
    """
    _check_lens(summary, lens)
    described = summary.variant(variant)
    return search(
        SearchSpace(
            layers=described["layers"],
            heads=described["heads"],
            exists=_existing(summary, variant),
            computed={name: _of_heads(lenses) for name, lenses in summary.document["measures"].items()},
            values=lambda measure, of: _means(summary, measure, of, variant),
            lens=lens,
        ),
        where,
    )


def _check_lens(summary: StudySummary, lens: str) -> None:
    if lens not in LENSES or lens not in [*summary.document["lenses"], "weights"]:
        known = ", ".join(summary.document["lenses"])
        raise Unsupported(f"Available lenses of this study: {known}.", pointer="/lens")


def _of_heads(lenses: Sequence[str]) -> list[str]:
    """Return the lenses with one map per head: scores are also about those of layers, and about baselines."""
    return [name for name in lenses if name in LENSES and LENSES[name].of == "heads"]


def _existing(summary: StudySummary, variant: int) -> Array:
    """Return which of the [L, H] heads exist. Layers may have fewer heads than others; missing heads have no counts in any statistic.

    Heads that exist have none in some, such as those of special tokens, of which a text may have none.
    """
    described = summary.variant(variant)
    shape = (len(described["layers"]), len(described["heads"]))
    counted = np.zeros(shape, bool)
    for name, values in summary.arrays.items():
        if name.startswith(f"stat/{variant}/") and name.endswith("/inputs") and values.shape[:2] == shape:
            counted |= values.reshape(*shape, -1).any(-1)
    return counted if counted.any() else ~counted


def _means(summary: StudySummary, measure: str, lens: str, variant: int) -> Array:
    """Return means over inputs in the shape that queries expect: with the measure's columns, and token axes of length 1."""
    declared = QUANTITIES[measure]
    means = _values(summary, measure, lens, variant).astype(np.float32)
    if declared.classes:
        counts = summary.classes(measure, lens, variant)
        place = declared.columns.index("class")
        means[..., place] = np.where(counts.sum(-1) > 0, counts.argmax(-1), np.nan)
    axes = declared.shape.split()
    return np.expand_dims(means, tuple(place for place, axis in enumerate(axes) if axis in TOKEN_AXES))


def _values(summary: StudySummary, measure: str, lens: str, variant: int) -> Array:
    if f"fixed/{variant}/{measure}/{lens}" in summary.arrays:
        return summary.fixed(measure, lens, variant)
    return summary.stat(measure, lens, variant).input_mean


def head(summary: StudySummary, layer: int, head: int, lens: str = "weights", variant: int = 0) -> dict[str, Any]:
    """Return the details of a head as JSON: numbers with intervals, distributions and top inputs, classes, and similar heads. Raises Unknown."""
    _check_lens(summary, lens)
    place = summary.place(layer, head, variant)
    numbers: list[dict[str, Any]] = []
    classes: list[dict[str, Any]] = []
    for measure, lenses in summary.document["measures"].items():
        chosen, axes = lens if lens in lenses else "weights", QUANTITIES[measure].shape.split()
        if axes[:2] == ["L", "H"] and axes.count("H") == 1 and chosen in lenses:
            if place[1] >= _values(summary, measure, chosen, variant).shape[1]:
                continue  # one number per layer
            numbers += _numbers(summary, measure, chosen, variant, place)
            classes += _classes(summary, measure, chosen, variant, place)
    return {
        "layer": layer,
        "head": head,
        "lens": lens,
        "variant": variant,
        "numbers": numbers,
        "classes": classes,
        "neighbours": _neighbours(summary, layer, head, lens, variant),
    }


def _numbers(
    summary: StudySummary, measure: str, lens: str, variant: int, place: tuple[int, int]
) -> list[dict[str, Any]]:
    """Return the numbers of a measure for a head, one per column; class numbers are left out."""
    describe = _describer(summary, measure, lens, variant)
    return [
        {"measure": measure, "lens": lens, "column": column, "unit": QUANTITIES[measure].unit_of(column)}
        | describe(place if index is None else (*place, index))
        for index, column in _columns(measure)
    ]


def _describer(
    summary: StudySummary, measure: str, lens: str, variant: int
) -> Callable[[tuple[int, ...]], dict[str, Any]]:
    """Return a function that maps the indices of one number to its statistics as JSON."""
    if f"fixed/{variant}/{measure}/{lens}" in summary.arrays:
        fixed = summary.fixed(measure, lens, variant)
        return lambda at: FIXED | {"mean": _plain(fixed[at])}
    stat, (value, row) = summary.stat(measure, lens, variant), summary.top(measure, lens, variant)
    (low, high), (below, above) = stat.interval(), stat.within(0.5)
    plain = {
        "mean": stat.mean, "std": stat.std, "low": stat.low, "high": stat.high, "median": stat.quantile(0.5), "input_mean": stat.input_mean,
    }  # fmt: skip

    def describe(at: tuple[int, ...]) -> dict[str, Any]:
        return {
            "count": int(stat.count[at]),
            "inputs": int(stat.inputs[at]),
            **{name: _plain(values[at]) for name, values in plain.items()},
            "median_within": [float(below[at]), float(above[at])] if np.isfinite(below[at]) else None,
            "interval": [float(low[at]), float(high[at])] if np.isfinite(low[at]) else None,
            "distribution": _distribution(stat, at),
            "top": _top(summary, value[at], row[at]),
        }

    return describe


def _columns(measure: str) -> list[tuple[int | None, str | None]]:
    """Return index and name of each column on axis C, or (None, None) for a measure without columns."""
    columns = QUANTITIES[measure].columns
    return [(place, name) for place, name in enumerate(columns) if name != "class"] if columns else [(None, None)]


def _distribution(stat: Stat, at: tuple[int, ...]) -> dict[str, Any] | None:
    """Return the histogram from the first to the last bin that is not empty."""
    counts = stat.histogram[at]
    filled = np.flatnonzero(counts)
    if not filled.size:
        return None
    first, last = int(filled[0]), int(filled[-1])
    return {"edges": stat.edges[first : last + 2].tolist(), "counts": counts[first : last + 1].tolist()}


def _top(summary: StudySummary, values: Array, rows: Array) -> list[dict[str, Any]]:
    """Return the inputs with the largest values, with their texts."""
    return [
        {"value": float(value), **summary.example(int(row))} for value, row in zip(values, rows, strict=True) if row > 0
    ]


def _classes(
    summary: StudySummary, measure: str, lens: str, variant: int, place: tuple[int, int]
) -> list[dict[str, Any]]:
    """Return the number of inputs in which the head had each class, most frequent first."""
    names = QUANTITIES[measure].classes
    if not names:
        return []
    counts = summary.classes(measure, lens, variant)[place]
    classes = [
        {"measure": measure, "name": name, "count": int(count), "share": float(count / counts.sum())}
        for name, count in zip(names, counts, strict=True)
        if count
    ]
    return sorted(classes, key=lambda each: -each["count"])


def _neighbours(summary: StudySummary, layer: int, head: int, lens: str, variant: int) -> list[dict[str, Any]]:
    try:
        nearest = summary.neighbours(layer, head, lens, variant)
    except Unsupported:  # maps of this lens were not compared
        return []
    return [{"layer": layer, "head": head, "cosine": cosine} for layer, head, cosine in nearest]


def _plain(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None
