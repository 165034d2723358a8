"""How figures look: colours, type and axes. Ink on paper, no grid but what helps to read a value, nothing that carries no data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

Theme = Literal["light", "dark"]
FONT = (
    "system-ui, -apple-system, 'Segoe UI', Inter, 'Helvetica Neue', 'Noto Sans', 'Liberation Sans', Arial, sans-serif"
)
# More labels than this on an axis are thinned out, so that they have room at 390 px.
MOST_LABELS = 12


@dataclass(frozen=True)
class Palette:
    """Colours of the page's style sheet (frontend/src/app/styles.css) under the same names."""

    paper: str
    ink: str
    muted: str
    line: str
    more: str
    more_end: str
    less: str
    less_end: str

    def ramp(self, count: int) -> list[str]:
        """So many colours by position, from light to strong, all of them distinct from the paper."""
        low, middle, high = (_rgb(colour) for colour in (self.paper, self.more, self.more_end))
        places = np.linspace(0.35, 1.0, count) if count > 1 else np.array([0.5])
        return [
            _hex(low + (middle - low) * 2 * t if t < 0.5 else middle + (high - middle) * (2 * t - 1)) for t in places
        ]

    def tint(self, colour: str, share: float) -> str:
        """A colour mixed with the paper: `share` 1 is the colour itself, 0 the paper."""
        return _hex(_rgb(self.paper) + (_rgb(colour) - _rgb(self.paper)) * share)

    def veil(self, colour: str, share: float) -> str:
        """The colour as something that what is drawn below shows through: `share` 1 hides it."""
        return f"rgba({','.join(f'{part:.0f}' for part in _rgb(colour))},{share:g})"


PALETTES: dict[Theme, Palette] = {
    "light": Palette("#fbfaf6", "#1b1d21", "#5d5f63", "#d9d6cc", "#3f74c0", "#0d2358", "#d4761b", "#662800"),
    "dark": Palette("#14161a", "#e9e7e0", "#a3a29b", "#34373d", "#4b8be0", "#c4daff", "#d98a2b", "#ffc98f"),
}


def _rgb(colour: str) -> Any:
    return np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)], float)


def _hex(rgb: Any) -> str:
    return "#" + "".join(f"{round(float(part)):02x}" for part in rgb)


# Above the picture, from its left edge on.
ABOVE = {
    "orientation": "h",
    "traceorder": "normal",
    "x": 0,
    "y": 1.02,
    "xanchor": "left",
    "yanchor": "bottom",
}


def layout(
    palette: Palette, x: dict[str, Any], y: dict[str, Any], legend: dict[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    """The layout of a figure with these two axes, and a legend at its place if it needs one."""
    return {
        "font": {"family": FONT, "size": 12, "color": palette.ink},
        "paper_bgcolor": palette.paper,
        "plot_bgcolor": palette.paper,
        "margin": {"l": 56, "r": 12, "t": 12, "b": 46},
        "showlegend": legend is not None,
        "legend": {"itemclick": False, "itemdoubleclick": False, **(legend or {})},
        "hovermode": "closest",
        "hoverlabel": {
            "bgcolor": palette.paper,
            "bordercolor": palette.ink,
            "font": {"size": 12, "color": palette.ink},
        },
        "xaxis": x,
        "yaxis": y,
        **more,
    }


def axis(palette: Palette, title: str, *, grid: bool = False, **more: Any) -> dict[str, Any]:
    """An axis with ticks outside and a title that names its unit; `grid` draws thin lines at its ticks."""
    return {
        "title": {"text": title, "font": {"size": 12}, "standoff": 8},
        "showgrid": grid,
        "gridcolor": palette.line,
        "zeroline": False,
        "showline": not grid,
        "linecolor": palette.muted,
        "ticks": "" if grid else "outside",
        "tickcolor": palette.muted,
        "ticklen": 4,
        "automargin": True,
        "fixedrange": True,
        **more,
    }


def positions(palette: Palette, title: str, names: Sequence[int | str], most: int = MOST_LABELS) -> dict[str, Any]:
    """An axis of layers or heads: place 0, 1, ... named as given, thinned out where there are more than `most`."""
    step = -(-len(names) // most)
    places = range(0, len(names), step)
    return axis(
        palette,
        title,
        tickvals=list(places),
        ticktext=[str(names[place]) for place in places],
        range=[-0.6, len(names) - 0.4],
        tickangle=0,
    )


def plain(numbers: Any, digits: int = 5) -> list[float | None]:
    """Numbers for JSON: significant digits, None where undefined."""
    return [float(f"{value:.{digits}g}") if np.isfinite(value) else None for value in np.ravel(numbers).tolist()]


def said(number: float) -> str:
    """A number in a sentence."""
    return "not defined" if not np.isfinite(number) else f"{number:.3g}"


def listed(what: str, names: Sequence[int | str], numbers: Sequence[float], of: str) -> str:
    """'Median entropy by layer (0 to 5): 1.2, ...'; of many numbers only the ends and the extremes."""
    span = f"{of} {names[0]}" if len(names) == 1 else f"{of} {names[0]} to {names[-1]}"
    defined = [(number, name) for number, name in zip(numbers, names, strict=True) if np.isfinite(number)]
    if not defined:
        return f"{what}, {span}: not defined."
    if len(numbers) <= 2 * MOST_LABELS:
        return f"{what}, {span}: {', '.join(said(number) for number in numbers)}."
    (low, lowest), (high, highest) = min(defined), max(defined)
    return f"{what}, {span}: from {said(low)} ({of} {lowest}) to {said(high)} ({of} {highest})."
