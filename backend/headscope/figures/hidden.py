"""Hidden states by layer: how much tokens still differ from each other (residual ratio), and violins of the cosines of all pairs."""

from __future__ import annotations

import numpy as np

from ..core.declarations import NoParams
from ..measures.hidden import BINS
from ..studies.results.summary import column_index
from .figure import Drawing, Figure, FigureData, values
from .theme import Palette, describe_values, layout, log_axis, positions, to_json, value_axis
from .violin import draw_violins, histogram_violin

RATIO = "residual_ratio"


def draw_ratio(data: FigureData, params: NoParams, palette: Palette) -> Drawing:
    """Draw one line over the layers on a logarithmic axis, where rank collapse is a straight fall."""
    ratios, layers = values(data, RATIO), list(data.document["layers"])  # [L]
    line = {
        "type": "scatter",
        "x": list(range(len(layers))),
        "y": to_json(ratios),
        "mode": "lines+markers",
        "line": {"color": palette.more, "width": 1.5},
        "marker": {"size": 7, "color": palette.more},
        "customdata": [[layer, None] for layer in layers],
        "hovertemplate": "After layer %{customdata[0]}<br>residual ratio %{y:.3~r}<extra></extra>",
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
    measures=(RATIO,),
    draw=draw_ratio,
)


SIMILARITY = "token_similarity"
EDGES = np.linspace(-1, 1, BINS + 1)
MIDDLES = (EDGES[:-1] + EDGES[1:]) / 2


def draw_similarity(data: FigureData, params: NoParams, palette: Palette) -> Drawing:
    """Draw violins of the measure's histogram; the bar spans 5 % to 95 % of the pairs."""
    measured, layers = values(data, SIMILARITY), list(data.document["layers"])  # [L, C]
    first = column_index(SIMILARITY, "bin_00")
    shares = measured[:, first : first + BINS]  # [L, BINS]
    mode, median, mean, low, high = (
        measured[:, column_index(SIMILARITY, name)] for name in ("mode", "median", "mean", "low", "high")
    )
    violins = [
        histogram_violin(
            np.nan_to_num(shares[at]), EDGES, (low[at], median[at], high[at]), f"Layer {layer}", [layer, None]
        )
        for at, layer in enumerate(layers)
    ]
    names = ("mode", "median", "mean", "quantile_5", "quantile_95", *(f"share_at_{middle:.3f}" for middle in MIDDLES))
    return Drawing(
        draw_violins(violins, palette, "5 % to 95 % of pairs:"),
        layout(palette, positions(palette, "after layer", layers), value_axis(palette, "cosine of two tokens")),
        describe_values("Median cosine of two tokens after each layer", layers, median.tolist(), "layer"),
        ("layer", *names),
        [
            [layer, *to_json([mode[at], median[at], mean[at], low[at], high[at], *shares[at]], 7)]
            for at, layer in enumerate(layers)
        ],
    )


TOKEN_SIMILARITY = Figure(
    name="token_similarity",
    title="Token similarity",
    doc="How similar the tokens have become after each layer: violins of the cosines between all pairs of hidden states. The dot is the median, the bar spans 5 % to 95 % of "
    "the pairs.",
    not_="Not similarity of meaning: a few large dimensions that all tokens share can put every cosine near 1. The outline is a histogram of 40 bins, not smoothed.",
    citation="Violins of cosines as in Masumura & Taki 2025, On the Role of Hidden States of Modern Hopfield Network in Transformer",
    range=(-1.0, 1.0),
    measures=(SIMILARITY,),
    draw=draw_similarity,
)
