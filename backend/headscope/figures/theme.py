"""The look of figures: colours, fonts and axes. Dark ink on paper, grid lines only where they help to read values, no decoration."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

Theme = Literal["light", "dark"]
FONT = (
    "system-ui, -apple-system, 'Segoe UI', Inter, 'Helvetica Neue', 'Noto Sans', 'Liberation Sans', Arial, sans-serif"
)
# Maximum labels on an axis, so that they fit into 390 px; more are thinned out.
MAX_LABELS = 12
SUPERSCRIPTS = str.maketrans("-0123456789", "\u207b\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079")


@dataclass(frozen=True)
class Palette:
    """The colours of the page's style sheet (frontend/src/app/styles.css), under the same names."""

    paper: str
    ink: str
    muted: str
    line: str
    more: str
    more_end: str
    less: str
    less_end: str

    def ramp(self, count: int) -> list[str]:
        """Return `count` colours from light to strong, all distinct from the paper."""
        low, middle, high = (_rgb(colour) for colour in (self.paper, self.more, self.more_end))
        places = np.linspace(0.35, 1.0, count) if count > 1 else np.array([0.5])
        return [
            _hex(low + (middle - low) * 2 * t if t < 0.5 else middle + (high - middle) * (2 * t - 1)) for t in places
        ]

    def tint(self, colour: str, share: float) -> str:
        """Mix a colour with the paper: `share` 1 is the colour itself, 0 the paper."""
        return _hex(_rgb(self.paper) + (_rgb(colour) - _rgb(self.paper)) * share)

    def veil(self, colour: str, share: float) -> str:
        """Return a translucent colour: `share` 1 is opaque."""
        return f"rgba({','.join(f'{part:.0f}' for part in _rgb(colour))},{share:g})"


PALETTES: dict[Theme, Palette] = {
    "light": Palette("#fbfaf6", "#1b1d21", "#5d5f63", "#d9d6cc", "#3f74c0", "#0d2358", "#d4761b", "#662800"),
    "dark": Palette("#14161a", "#e9e7e0", "#a3a29b", "#34373d", "#4b8be0", "#c4daff", "#d98a2b", "#ffc98f"),
}


def _rgb(colour: str) -> Any:
    return np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)], float)


def _hex(rgb: Any) -> str:
    return "#" + "".join(f"{round(float(part)):02x}" for part in rgb)


# A legend above the plot, aligned left.
ABOVE = {"orientation": "h", "traceorder": "normal", "x": 0, "y": 1.02, "xanchor": "left", "yanchor": "bottom"}


def layout(
    palette: Palette, x: dict[str, Any], y: dict[str, Any], legend: dict[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    """Return the layout of a figure with two axes, and a legend if its position is given."""
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
    """Return an axis with ticks outside and a title that names its unit. `grid` draws thin lines at its ticks instead."""
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


def value_axis(palette: Palette, title: str, **more: Any) -> dict[str, Any]:
    """Return an axis of values, with thin lines at its ticks."""
    return axis(palette, title, grid=True, **more)


def log_axis(palette: Palette, title: str, values: Any) -> dict[str, Any]:
    """Return a logarithmic axis of values with labelled ticks."""
    ticks = log_ticks(values)
    ends = [float(np.log10(tick)) for tick in (ticks[0] * 0.95, ticks[-1] * 1.05)]
    scale = value_axis(palette, title, type="log", tickvals=ticks, range=ends)
    return scale | {"ticktext": [format_number(tick) for tick in ticks]}


def log_ticks(values: Any) -> list[float]:
    """Return ticks from below the smallest to above the largest value: 1, 2, 5, 10, ..., or 1, 2, 3, ... for a narrow range, or only decades for a wide one."""
    positive = values[np.isfinite(values) & (values > 0)]
    low, high = (float(positive.min()), float(positive.max())) if positive.size else (0.1, 1.0)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 5) if high > 2 * low else range(1, 10)
    fine = [step * 10.0**decade for decade in decades for step in steps]
    candidates = (
        [tick for tick in fine if low / 2.5 < tick < high * 2.5] if len(decades) <= 3 else [10.0**d for d in decades]
    )
    first = max((tick for tick in candidates if tick <= low), default=candidates[0])
    last = min((tick for tick in candidates if tick >= high), default=candidates[-1])
    return [tick for tick in candidates if first <= tick <= last]


def positions(palette: Palette, title: str, names: Sequence[int | str], most: int = MAX_LABELS) -> dict[str, Any]:
    """Return an axis of layers or heads with the given names at positions 0, 1, ..., thinned out to at most `most` labels."""
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


def to_json(numbers: Any, digits: int = 5) -> list[float | None]:
    """Round numbers to significant digits for JSON; undefined ones are None."""
    return [float(f"{value:.{digits}g}") if np.isfinite(value) else None for value in np.ravel(numbers).tolist()]


def rows_by_head(layers: Sequence[Any], heads: Sequence[Any], *arrays: Any, digits: int = 10) -> list[list[Any]]:
    """Return one row per head: its layer, its number, and its entry in each array [L, H]."""
    return [
        [layer, head, *to_json([array[i, j] for array in arrays], digits)]
        for i, layer in enumerate(layers)
        for j, head in enumerate(heads)
    ]


def head_dots(values: Any, layers: Sequence[int], heads: Sequence[int], spread: float) -> dict[str, Any]:
    """Draw a dot per head at its value, [L, H], by number from left to right within a width of `spread` around its layer."""
    offsets = np.linspace(-spread / 2, spread / 2, len(heads)) if len(heads) > 1 else np.zeros(1)
    places = np.arange(len(layers))[:, None] + offsets  # [L, H]
    return {"type": "scatter", "x": to_json(places), "y": to_json(values), "mode": "markers"}


def format_number(number: float) -> str:
    """Format a number for a sentence: three significant digits, a real minus sign, and a power of ten if its decimals would be mostly zeros."""
    if not np.isfinite(number):
        return "not defined"
    mantissa, power = f"{number:.2e}".split("e")
    if number == 0 or -3 <= int(power) < 9:
        return _trim(f"{float(f'{number:.3g}'):.6f}")
    factor = {"1": "", "\u22121": "\u2212"}.get(_trim(mantissa), f"{_trim(mantissa)}\u00b7")
    return f"{factor}10{str(int(power)).translate(SUPERSCRIPTS)}"


def _trim(decimals: str) -> str:
    return decimals.rstrip("0").rstrip(".").replace("-", "\u2212")


def describe_values(what: str, names: Sequence[int | str], numbers: Sequence[float], of: str) -> str:
    """Describe numbers in a sentence such as 'Median entropy, layer 0 to 5: 1.2, ...'; of many numbers only the extremes."""
    span = f"{of} {names[0]}" if len(names) == 1 else f"{of} {names[0]} to {names[-1]}"
    defined = [(number, name) for number, name in zip(numbers, names, strict=True) if np.isfinite(number)]
    if not defined:
        return f"{what}, {span}: not defined."
    if len(numbers) <= 2 * MAX_LABELS:
        return f"{what}, {span}: {', '.join(format_number(number) for number in numbers)}."
    (low, lowest), (high, highest) = min(defined), max(defined)
    return f"{what}, {span}: from {format_number(low)} ({of} {lowest}) to {format_number(high)} ({of} {highest})."
