"""Several pictures in one figure: their places and titles, maps of all heads, and colours from low to high."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..paper import Palette, axis, layout, plain, positions

Array = NDArray[Any]
# Parts of the width and height between two panels: what the axes between them need.
ACROSS, BETWEEN = 0.1, 0.2
# The same where every panel has a scale of colours at its right.
BESIDE = 0.16


@dataclass(frozen=True)
class Scale:
    """A bar of colours beside a panel; `title` says what it measures."""

    title: str = ""


@dataclass(frozen=True)
class Panel:
    """One picture of several: its title, traces, axes, and the scale of colours of its first trace if it is to be shown."""

    title: str
    traces: Sequence[dict[str, Any]]
    x: dict[str, Any]
    y: dict[str, Any]
    scale: Scale | None = None


def laid(
    palette: Palette, panels: Sequence[Panel], columns: int, **more: Any
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Traces and layout of panels, row by row from the top left. Of panels below each other the lowest names an axis that they share."""
    rows = -(-len(panels) // columns)
    traces, axes, titles = list[dict[str, Any]](), dict[str, Any](), list[dict[str, Any]]()
    for number, panel in enumerate(panels):
        row, column = divmod(number, columns)
        left, right = _span(column, columns, BESIDE if any(each.scale for each in panels) else ACROSS)
        bottom, top = _span(rows - 1 - row, rows, BETWEEN)
        end = "" if number == 0 else str(number + 1)
        traces += [{**trace, "xaxis": f"x{end}", "yaxis": f"y{end}"} for trace in panel.traces]
        if panel.scale is not None:
            at = {"x": right, "xpad": 4, "y": (bottom + top) / 2, "len": top - bottom}
            traces[-len(panel.traces)] |= {"showscale": True, "colorbar": scale(palette, panel.scale.title, **at)}
        below = panels[number + columns].x if number + columns < len(panels) else {}
        named = panel.x if below.get("title") != panel.x["title"] else {**panel.x, "title": {"text": ""}}
        axes[f"xaxis{end}"] = {**named, "domain": [left, right], "anchor": f"y{end}"}
        axes[f"yaxis{end}"] = {**panel.y, "domain": [bottom, top], "anchor": f"x{end}"}
        titles.append(_title(palette, panel.title, left, top))
    found = layout(palette, axes.pop("xaxis"), axes.pop("yaxis"), **more)
    return traces, {**found, **axes, "annotations": titles, "margin": {**found["margin"], "t": 30}}


def _span(place: int, number: int, gap: float) -> tuple[float, float]:
    """Where a panel begins and ends, of 0 to 1."""
    size = (1 - gap * (number - 1)) / number
    low = place * (size + gap)
    return round(low, 4), round(min(1.0, low + size), 4)


def _title(palette: Palette, text: str, left: float, top: float) -> dict[str, Any]:
    where = {"xref": "paper", "yref": "paper", "x": left, "y": top, "xanchor": "left", "yanchor": "bottom", "yshift": 4}
    return {"text": text, "showarrow": False, "font": {"size": 12, "color": palette.ink}, **where}


def sequential(palette: Palette) -> list[list[Any]]:
    """From nothing (the paper) to much."""
    return [[0, palette.paper], [0.5, palette.more], [1, palette.more_end]]


def diverging(palette: Palette) -> list[list[Any]]:
    """From far below 0 over 0 (the paper) to far above."""
    ends = [[0.75, palette.more], [1, palette.more_end]]
    return [[0, palette.less_end], [0.25, palette.less], [0.5, palette.paper], *ends]


def tone(palette: Palette, low: float) -> list[list[Any]]:
    """The colours for values from `low` on: signed ones have two."""
    return diverging(palette) if low < 0 else sequential(palette)


def heads_map(
    palette: Palette,
    values: Array,
    layers: Sequence[int],
    heads: Sequence[int],
    *,
    what: str,
    bounds: tuple[float, float],
    about: Array | None = None,
    says: str = "",
) -> dict[str, Any]:
    """A coloured cell per head, [L, H]: rows are layers. `about` [L, H, N] follows layer and head in customdata, and `says` shows it."""
    low, high = bounds
    marks = np.empty((len(layers), len(heads), 2 + (0 if about is None else about.shape[-1])), dtype=object)
    marks[..., 0], marks[..., 1] = np.array(layers)[:, None], np.array(heads)[None]
    if about is not None:
        for at in np.ndindex(about.shape[:2]):
            marks[at][2:] = plain(about[at], 3)
    return {
        "type": "heatmap",
        "z": [plain(row) for row in values],
        "x": list(range(len(heads))),
        "y": list(range(len(layers))),
        "zmin": low,
        "zmax": high,
        "colorscale": tone(palette, low),
        "xgap": 1,
        "ygap": 1,
        "showscale": False,
        "customdata": marks.tolist(),
        "hoverongaps": False,
        "hovertemplate": f"Head %{{customdata[0]}}.%{{customdata[1]}}<br>{what} %{{z:.3g}}{says}<extra></extra>",
    }


def scale(palette: Palette, title: str, **at: Any) -> dict[str, Any]:
    """The bar that says what colour is how much."""
    font = {"size": 10, "color": palette.muted}
    named = {"title": {"text": title, "side": "right", "font": {"size": 12}}} if title else {}
    return {"thickness": 8, "outlinewidth": 0, "ticks": "", "tickfont": font, "nticks": 5, **named, **at}


def layer_rows(palette: Palette, layers: Sequence[int], title: str = "layer") -> dict[str, Any]:
    """The axis of layers of a map of heads: layer 0 on top, as on the page."""
    down = positions(palette, title, list(layers))
    return {**down, "range": [len(layers) - 0.5, -0.5], "showline": False, "ticks": ""}


def head_columns(palette: Palette, heads: Sequence[int], title: str = "head", most: int = 12) -> dict[str, Any]:
    """The axis of heads of a map of heads."""
    along = positions(palette, title, list(heads), most)
    return {**along, "range": [-0.5, len(heads) - 0.5], "showline": False, "ticks": ""}


def plain_axis(palette: Palette, title: str, **more: Any) -> dict[str, Any]:
    """An axis of values in a panel, with thin lines at its ticks."""
    return axis(palette, title, grid=True, **more)


def reach(*several: Array, floor: float | None = None) -> tuple[float, float]:
    """Bounds of a colour scale that all values share: from `floor` (0 if not given) up, or symmetric about 0 where any is negative."""
    defined = np.concatenate([each[np.isfinite(each)].ravel() for each in several])
    if defined.size == 0:
        return 0.0, 1.0
    low, high = float(defined.min()), float(defined.max())
    if low < 0:
        most = max(-low, high)
        return -most, most
    start = 0.0 if floor is None else floor
    return start, high if high > start else start + 1.0
