"""Similarity of tokens in each layer: violins of the cosines of all pairs."""

from __future__ import annotations

import numpy as np

from ..core.declarations import NoParams
from ..measures.hidden import BINS
from ..studies.results.means import column_index
from .figure import Drawing, Figure, FigureData, values
from .theme import Palette, describe_values, layout, positions, to_json, value_axis
from .violin import draw_violins, histogram_violin

NAME = "token_similarity"
EDGES = np.linspace(-1, 1, BINS + 1)
MIDDLES = (EDGES[:-1] + EDGES[1:]) / 2


def draw(data: FigureData, params: NoParams, palette: Palette) -> Drawing:
    """Draw violins of the measure's histogram; the bar spans 5 % to 95 % of the pairs."""
    measured, layers = values(data, NAME), list(data.document["layers"])  # [L, C]
    first = column_index(NAME, "bin_00")
    shares = measured[:, first : first + BINS]  # [L, BINS]
    mode, median, mean, low, high = (
        measured[:, column_index(NAME, name)] for name in ("mode", "median", "mean", "low", "high")
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
    measures=(NAME,),
    draw=draw,
)
