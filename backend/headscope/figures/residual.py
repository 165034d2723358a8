"""How much tokens still differ from each other after each layer."""

from __future__ import annotations

import math

import numpy as np

from ..core.declarations import NoParams
from .figure import Array, Drawing, Figure, Numbers, values
from .paper import Palette, axis, layout, listed, plain, positions

NAME = "residual_ratio"


def draw(numbers: Numbers, params: NoParams, palette: Palette) -> Drawing:
    """One line over the layers, on a logarithmic axis: rank collapse is a straight fall there."""
    found, layers = values(numbers, NAME), list(numbers.document["layers"])  # [L]
    line = {
        "type": "scatter",
        "x": list(range(len(layers))),
        "y": plain(found),
        "mode": "lines+markers",
        "line": {"color": palette.more, "width": 1.5},
        "marker": {"size": 7, "color": palette.more},
        "customdata": [[layer, None] for layer in layers],
        "hovertemplate": "After layer %{customdata[0]}<br>residual ratio %{y:.3g}<extra></extra>",
    }
    ticks = log_ticks(found)
    ends = [float(np.log10(tick)) for tick in (ticks[0] * 0.95, ticks[-1] * 1.05)]
    ratio = axis(palette, "residual ratio (log scale)", grid=True, type="log", tickvals=ticks, range=ends)
    ratio["ticktext"] = [f"{tick:g}" for tick in ticks]
    return Drawing(
        [line],
        layout(palette, positions(palette, "after layer", layers), ratio),
        listed("Residual ratio after each layer", layers, found.tolist(), "layer"),
        ("layer", "residual_ratio"),
        [[layer, *plain([value], 7)] for layer, value in zip(layers, found, strict=True)],
    )


def log_ticks(found: Array) -> list[float]:
    """1, 2, 5, 10, ... (1, 2, 3, ... if all are close) from below the smallest value to above the largest; whole decades only where that would be many."""
    positive = found[np.isfinite(found) & (found > 0)]
    low, high = (float(positive.min()), float(positive.max())) if positive.size else (0.1, 1.0)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 5) if high > 2 * low else range(1, 10)
    fine = [step * 10.0**decade for decade in decades for step in steps]
    several = (
        [tick for tick in fine if low / 2.5 < tick < high * 2.5] if len(decades) <= 3 else [10.0**d for d in decades]
    )
    first = max((tick for tick in several if tick <= low), default=several[0])
    last = min((tick for tick in several if tick >= high), default=several[-1])
    return [tick for tick in several if first <= tick <= last]


RESIDUAL_RATIO = Figure(
    name="residual_ratio",
    title="Residual ratio",
    doc="How much of the hidden states still differs from token to token after each layer; a straight fall on this logarithmic axis is rank collapse.",
    not_="Not about single heads, and not comparable below about 1e-6, where float32 rounds the differences away.",
    citation="Dong, Cordonnier & Loukas 2021, Attention is not all you need, fig. 2",
    range=(0.0, None),
    measures=(NAME,),
    draw=draw,
)
