"""Figures of several panels: their layout and titles, grids of heads, and colour scales."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.arrays import Array
from ...studies.results.summary import Means
from ..theme import MAX_LABELS, Palette, layout, positions, to_json
from .figure import INTERVAL_TIP, tips_by_head

# Space between panels for their axes, as parts of the width and height.
ACROSS, BETWEEN = 0.1, 0.2
# Horizontal space if panels have a colour bar.
BESIDE = 0.16


@dataclass(frozen=True)
class Panel:
    """One of several panels: its title, traces and axes, and whether its first trace has a colour bar."""

    title: str
    traces: Sequence[dict[str, Any]]
    x: dict[str, Any]
    y: dict[str, Any]
    has_color_bar: bool = False


def arrange_panels(
    palette: Palette, panels: Sequence[Panel], columns: int, **more: Any
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return traces and layout of panels, row by row from the top left. An x axis shared by a column of panels is named once, at the bottom."""
    rows = -(-len(panels) // columns)
    traces, axes, titles = list[dict[str, Any]](), dict[str, Any](), list[dict[str, Any]]()
    for number, panel in enumerate(panels):
        row, column = divmod(number, columns)
        left, right = _span(column, columns, BESIDE if any(each.has_color_bar for each in panels) else ACROSS)
        bottom, top = _span(rows - 1 - row, rows, BETWEEN)
        end = "" if number == 0 else str(number + 1)
        traces += [{**trace, "xaxis": f"x{end}", "yaxis": f"y{end}"} for trace in panel.traces]
        if panel.has_color_bar:
            at = {"x": right, "xpad": 4, "y": (bottom + top) / 2, "len": top - bottom}
            traces[-len(panel.traces)] |= {"showscale": True, "colorbar": color_bar(palette, "", **at)}
        below = panels[number + columns].x if number + columns < len(panels) else {}
        x = panel.x if below.get("title") != panel.x["title"] else {**panel.x, "title": {"text": ""}}
        axes[f"xaxis{end}"] = {**x, "domain": [left, right], "anchor": f"y{end}"}
        axes[f"yaxis{end}"] = {**panel.y, "domain": [bottom, top], "anchor": f"x{end}"}
        titles.append(_title(palette, panel.title, left, top))
    whole = layout(palette, axes.pop("xaxis"), axes.pop("yaxis"), **more)
    return traces, {**whole, **axes, "annotations": titles, "margin": {**whole["margin"], "t": 30}}


def _span(place: int, number: int, gap: float) -> tuple[float, float]:
    """Return where a panel begins and ends, from 0 to 1."""
    size = (1 - gap * (number - 1)) / number
    low = place * (size + gap)
    return round(low, 4), round(min(1.0, low + size), 4)


def _title(palette: Palette, text: str, left: float, top: float) -> dict[str, Any]:
    where = {"xref": "paper", "yref": "paper", "x": left, "y": top, "xanchor": "left", "yanchor": "bottom", "yshift": 4}
    return {"text": text, "showarrow": False, "font": {"size": 12, "color": palette.ink}, **where}


def color_scale(palette: Palette, low: float) -> list[list[Any]]:
    """Return the colour scale of values from `low` on: from zero (paper) to high, or diverging from zero if they are signed."""
    colours = [palette.paper, palette.more, palette.more_end]
    if low < 0:
        colours = [palette.less_end, palette.less, *colours]
    return [[at / (len(colours) - 1), colour] for at, colour in enumerate(colours)]


def head_grid(
    palette: Palette,
    found: Means,
    layers: Sequence[int],
    heads: Sequence[int],
    *,
    what: str,
    bounds: tuple[float, float],
) -> dict[str, Any]:
    """Draw a coloured cell per head, [L, H]; rows are layers. The tooltip shows the interval of the mean."""
    low, high = bounds
    rows = tips_by_head(layers, heads, found)
    by_layer = [rows[start : start + len(heads)] for start in range(0, len(rows), len(heads))]
    return {
        "type": "heatmap",
        "z": [to_json(row) for row in found.mean],
        "x": list(range(len(heads))),
        "y": list(range(len(layers))),
        "zmin": low,
        "zmax": high,
        "colorscale": color_scale(palette, low),
        "xgap": 1,
        "ygap": 1,
        "showscale": False,
        "customdata": by_layer,
        "hoverongaps": False,
        "hovertemplate": f"Head %{{customdata[0]}}.%{{customdata[1]}}<br>{what} %{{z:.3~r}}{INTERVAL_TIP}<extra></extra>",
    }


def color_bar(palette: Palette, title: str, **at: Any) -> dict[str, Any]:
    """Return a colour bar."""
    font = {"size": 10, "color": palette.muted}
    named = {"title": {"text": title, "side": "right", "font": {"size": 12}}} if title else {}
    return {"thickness": 8, "outlinewidth": 0, "ticks": "", "tickfont": font, "nticks": 5, **named, **at}


def layer_rows(palette: Palette, layers: Sequence[int], title: str = "layer", most: int = MAX_LABELS) -> dict[str, Any]:
    """Return the axis of layers of a grid of heads: layer 0 on top, as on the page."""
    down = positions(palette, title, list(layers), most)
    return {**down, "range": [len(layers) - 0.5, -0.5], "showline": False, "ticks": ""}


def head_columns(palette: Palette, heads: Sequence[int], title: str = "head", most: int = 12) -> dict[str, Any]:
    """Return the axis of heads of a grid of heads."""
    along = positions(palette, title, list(heads), most)
    return {**along, "range": [-0.5, len(heads) - 0.5], "showline": False, "ticks": ""}


def name_axis(names: Sequence[str], title: str = "", *, down: bool = False, step: int = 1) -> dict[str, Any]:
    """Return an axis with every `step`-th of the given names at positions 0, 1, ...; `down` from the top."""
    places = list(range(0, len(names), step))
    ends = [-0.5, len(names) - 0.5]
    return {
        "tickvals": places,
        "ticktext": [names[place] for place in places],
        "range": ends[::-1] if down else ends,
        "showgrid": False,
        "zeroline": False,
        "title": {"text": title},
        "automargin": True,
        "fixedrange": True,
    }


def color_range(*several: Array) -> tuple[float, float]:
    """Return the bounds of a colour scale for all values: from 0, or symmetric about 0 if any value is negative."""
    defined = np.concatenate([each[np.isfinite(each)].ravel() for each in several])
    if defined.size == 0:
        return 0.0, 1.0
    low, high = float(defined.min()), float(defined.max())
    if low < 0:
        largest = max(-low, high)
        return -largest, largest
    return 0.0, high if high > 0 else 1.0
