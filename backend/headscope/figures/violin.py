"""Violins: the density of values as an outline around median and quartiles. Plain lines, independent of the number of values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core.arrays import Array
from .theme import Palette, to_json

# Half the maximum width of a violin, in units of the distance between violins.
HALF = 0.4
# Histogram cells before smoothing, and points of the outline.
CELLS, POINTS = 512, 65


@dataclass(frozen=True)
class Violin:
    """One violin: density on a grid; `low`, `middle` and `high` are drawn as a bar with a dot. `about` is its customdata, [layer, head]."""

    grid: Array
    density: Array
    low: float
    middle: float
    high: float
    label: str
    about: list[int | None]


def density(values: Array) -> tuple[Array, Array]:
    """Return the Gaussian kernel density of values, from the smallest to the largest: grid and densities, [POINTS] each.

    Silverman's bandwidth, 0.9 min(standard deviation, interquartile range / 1.34) n^(-1/5). All 0 if all values are equal.
    """
    low, high = float(values.min()), float(values.max())
    grid = np.linspace(low, high, POINTS)
    if high - low <= 1e-9 * max(abs(low), abs(high)):
        return grid, np.zeros(POINTS)
    counts, edges = np.histogram(values, CELLS, (low, high))
    quartiles = np.quantile(values, [0.25, 0.75])
    return grid, _smooth(grid, counts, edges, values.std(), quartiles)


def density_of_counts(counts: Array, edges: Array, low: float, high: float) -> tuple[Array, Array]:
    """Return the density of binned values, which count as uniform within a bin. `low` and `high` are the smallest and the largest value."""
    grid = np.linspace(low, high, POINTS)
    total = np.concatenate([[0.0], np.cumsum(counts)])
    if total[-1] == 0 or high - low <= 1e-9 * max(abs(low), abs(high)):
        return grid, np.zeros(POINTS)
    middles = (edges[:-1] + edges[1:]) / 2
    mean = counts @ middles / total[-1]
    deviation = np.sqrt(counts @ (middles - mean) ** 2 / total[-1])
    return grid, _smooth(grid, counts, edges, deviation, np.interp(np.array([0.25, 0.75]) * total[-1], total, edges))


def _smooth(grid: Array, counts: Array, edges: Array, deviation: float, quartiles: Array) -> Array:
    """Smooth counts to densities on a grid."""
    total = counts.sum()
    spreads = [spread for spread in (deviation, (quartiles[1] - quartiles[0]) / 1.34) if spread > 0]
    narrowest = float(np.diff(edges).min())
    width = max(0.9 * min(spreads, default=narrowest) * total**-0.2, narrowest)
    distances = (grid[:, None] - (edges[:-1] + edges[1:]) / 2) / width  # [POINTS, cells]
    smoothed: Array = np.exp(-(distances**2) / 2) @ counts / (total * width * np.sqrt(2 * np.pi))
    return smoothed


def histogram_violin(
    counts: Array, edges: Array, bounds: Sequence[float], label: str, about: list[int | None]
) -> Violin | None:
    """Return a violin whose outline is a histogram, from the empty bin before the first count to the one after the last. `bounds` are low, middle and high."""
    filled = np.flatnonzero(counts)
    if filled.size == 0:
        return None
    span = slice(max(0, filled[0] - 1), filled[-1] + 2)
    low, middle, high = bounds
    middles = (edges[:-1] + edges[1:]) / 2
    return Violin(middles[span], counts[span].astype(float), low, middle, high, label, about)


def group_by(layers: Sequence[int], heads: Sequence[int], layer: int | None) -> tuple[str, list[int], list[list[Any]]]:
    """Return the unit of each violin (layer, or head of one layer), its names, and its customdata [layer, head]."""
    if layer is None:
        return "layer", list(layers), [[each, None] for each in layers]
    return "head", list(heads), [[layer, head] for head in heads]


def draw_violins(several: Sequence[Violin | None], palette: Palette, says: str) -> list[dict[str, Any]]:
    """Draw violins at positions 0, 1, ...: all outlines, all bars, all dots. None leaves its position empty; `says` names the ends of the bar."""
    x: list[float | None] = []
    y: list[float | None] = []
    bars: tuple[list[float | None], list[float | None]] = ([], [])
    drawn = [(place, violin) for place, violin in enumerate(several) if violin is not None]
    for place, violin in drawn:
        half = HALF * violin.density / (violin.density.max() or 1.0)
        x += [*to_json(np.concatenate([place - half, (place + half)[::-1]])), None]
        y += [*to_json(np.concatenate([violin.grid, violin.grid[::-1]])), None]
        bars[0].extend([place, place, None])
        bars[1].extend([*to_json([violin.low, violin.high]), None])
    outline: dict[str, Any] = {
        "type": "scatter",
        "x": x,
        "y": y,
        "mode": "lines",
        "fill": "toself",
        "hoverinfo": "skip",
    }
    outline |= {"fillcolor": palette.tint(palette.more, 0.3), "line": {"color": palette.more, "width": 1}}
    bar: dict[str, Any] = {"type": "scatter", "x": bars[0], "y": bars[1], "mode": "lines", "hoverinfo": "skip"}
    bar |= {"line": {"color": palette.ink, "width": 2.5}}
    dots = {
        "type": "scatter",
        "x": [place for place, _ in drawn],
        "y": to_json([violin.middle for _, violin in drawn]),
        "mode": "markers",
        "marker": {"size": 7, "color": palette.paper, "line": {"color": palette.ink, "width": 1.5}},
        "customdata": [[*violin.about, violin.label, *to_json([violin.low, violin.high], 3)] for _, violin in drawn],
        "hovertemplate": f"%{{customdata[2]}}<br>median %{{y:.3~r}}<br>{says} %{{customdata[3]}} to %{{customdata[4]}}<extra></extra>",
    }
    return [outline, bar, dots]
