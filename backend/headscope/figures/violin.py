"""Violins: how values are spread, as an outline around the quartiles and the median. Plain lines, whatever the number of values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .paper import Palette, plain

Array = NDArray[Any]
# Half the width of the widest place of a violin, in distances between two of them.
HALF = 0.4
# Cells that values are counted in before they are smoothed, and places at which the outline is drawn.
CELLS, PLACES = 512, 65


@dataclass(frozen=True)
class Violin:
    """One violin: density at the places of a grid; `low`, `middle`, `high` are drawn as a bar with a dot. `about` goes with it as customdata."""

    grid: Array
    density: Array
    low: float
    middle: float
    high: float
    label: str
    about: list[int | None] = field(default_factory=list)


def density(values: Array) -> tuple[Array, Array]:
    """Gaussian kernel density of values, from the smallest to the largest one: places and densities, [PLACES] each.

    Silverman's bandwidth, 0.9 min(standard deviation, interquartile range / 1.34) n^(-1/5). All 0 for values that are all the same.
    """
    low, high = float(values.min()), float(values.max())
    grid = np.linspace(low, high, PLACES)
    if high - low <= 1e-9 * max(abs(low), abs(high)):
        return grid, np.zeros(PLACES)
    counts, edges = np.histogram(values, CELLS, (low, high))
    quartiles = np.quantile(values, [0.25, 0.75])
    return grid, _smooth(grid, counts, edges, values.std(), quartiles)


def density_of_counts(counts: Array, edges: Array, low: float, high: float) -> tuple[Array, Array]:
    """The same of values that were counted between edges, evenly spread within a bin. `low` and `high` are the smallest and the largest value."""
    grid = np.linspace(low, high, PLACES)
    total = np.concatenate([[0.0], np.cumsum(counts)])
    if total[-1] == 0 or high - low <= 1e-9 * max(abs(low), abs(high)):
        return grid, np.zeros(PLACES)
    middles = (edges[:-1] + edges[1:]) / 2
    mean = counts @ middles / total[-1]
    deviation = np.sqrt(counts @ (middles - mean) ** 2 / total[-1])
    return grid, _smooth(grid, counts, edges, deviation, np.interp(np.array([0.25, 0.75]) * total[-1], total, edges))


def _smooth(grid: Array, counts: Array, edges: Array, deviation: float, quartiles: Array) -> Array:
    """Counts as densities at the places of a grid."""
    number = counts.sum()
    spreads = [spread for spread in (deviation, (quartiles[1] - quartiles[0]) / 1.34) if spread > 0]
    least = float(np.diff(edges).min())
    width = max(0.9 * min(spreads, default=least) * number**-0.2, least)
    distances = (grid[:, None] - (edges[:-1] + edges[1:]) / 2) / width  # [PLACES, cells]
    found: Array = np.exp(-(distances**2) / 2) @ counts / (number * width * np.sqrt(2 * np.pi))
    return found


def violins(several: Sequence[Violin | None], palette: Palette, says: str) -> list[dict[str, Any]]:
    """Violins side by side at places 0, 1, ...: all outlines, all bars, all dots. None leaves its place empty; `says` names what the bar's ends are."""
    x: list[float | None] = []
    y: list[float | None] = []
    bars: tuple[list[float | None], list[float | None]] = ([], [])
    for place, violin in enumerate(several):
        if violin is None:
            continue
        half = HALF * violin.density / (violin.density.max() or 1.0)
        x += [*plain(np.concatenate([place - half, (place + half)[::-1]])), None]
        y += [*plain(np.concatenate([violin.grid, violin.grid[::-1]])), None]
        bars[0].extend([place, place, None])
        bars[1].extend([*plain([violin.low, violin.high]), None])
    there = [(place, violin) for place, violin in enumerate(several) if violin is not None]
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
        "x": [place for place, _ in there],
        "y": plain([violin.middle for _, violin in there]),
        "mode": "markers",
        "marker": {"size": 7, "color": palette.paper, "line": {"color": palette.ink, "width": 1.5}},
        "customdata": [[*violin.about, violin.label, *plain([violin.low, violin.high], 3)] for _, violin in there],
    }
    at = len(there[0][1].about) if there else 0
    shown = (
        f"%{{customdata[{at}]}}<br>median %{{y:.3g}}<br>{says} %{{customdata[{at + 1}]}} to %{{customdata[{at + 2}]}}"
    )
    return [outline, bar, dots | {"hovertemplate": f"{shown}<extra></extra>"}]
