"""Residual ratio: how much tokens still differ from each other after each layer."""

from __future__ import annotations

from ..core.declarations import NoParams
from .figure import Drawing, Figure, FigureData, values
from .theme import Palette, describe_values, layout, log_axis, positions, to_json

NAME = "residual_ratio"


def draw(data: FigureData, params: NoParams, palette: Palette) -> Drawing:
    """Draw one line over the layers on a logarithmic axis, where rank collapse is a straight fall."""
    ratios, layers = values(data, NAME), list(data.document["layers"])  # [L]
    line = {
        "type": "scatter",
        "x": list(range(len(layers))),
        "y": to_json(ratios),
        "mode": "lines+markers",
        "line": {"color": palette.more, "width": 1.5},
        "marker": {"size": 7, "color": palette.more},
        "customdata": [[layer, None] for layer in layers],
        "hovertemplate": "After layer %{customdata[0]}<br>residual ratio %{y:.3g}<extra></extra>",
    }
    return Drawing(
        [line],
        layout(
            palette,
            positions(palette, "after layer", layers),
            log_axis(palette, "residual ratio (log scale)", ratios),
        ),
        describe_values("Residual ratio after each layer", layers, ratios.tolist(), "layer"),
        ("layer", "residual_ratio"),
        [[layer, *to_json([value], 7)] for layer, value in zip(layers, ratios, strict=True)],
    )


RESIDUAL_RATIO = Figure(
    name="residual_ratio",
    title="Residual ratio",
    doc="How much the hidden states of tokens still differ after each layer. A straight fall on this logarithmic axis is rank collapse.",
    not_="Not about single heads, and not comparable below about 1e-6, where differences vanish in float32 rounding.",
    citation="Dong, Cordonnier & Loukas 2021, Attention is not all you need, fig. 2",
    range=(0.0, None),
    measures=(NAME,),
    draw=draw,
)
