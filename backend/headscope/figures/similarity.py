"""How alike the tokens of each layer are: violins of the cosines of all pairs."""

from __future__ import annotations

import numpy as np

from ..core.declarations import NoParams
from ..measures.hidden import BINS
from .figure import Drawing, Figure, Numbers, column, values
from .paper import Palette, axis, layout, listed, plain, positions
from .violin import Violin, violins

NAME = "token_similarity"
MIDDLES = (np.arange(BINS) + 0.5) * (2 / BINS) - 1


def draw(numbers: Numbers, params: NoParams, palette: Palette) -> Drawing:
    """Violins of the histogram that the measure keeps; the bar spans 5 % to 95 % of the pairs."""
    found, layers = values(numbers, NAME), list(numbers.document["layers"])  # [L, C]
    first = column(NAME, "bin_00")
    mode, median, mean, low, high = (found[:, column(NAME, name)] for name in ("mode", "median", "mean", "low", "high"))
    drawn: list[Violin | None] = []
    for place, layer in enumerate(layers):
        shares = found[place, first : first + BINS]
        known = np.flatnonzero(shares > 0)
        if known.size == 0:
            drawn.append(None)
            continue
        span = slice(
            max(0, known[0] - 1), known[-1] + 2
        )  # from the empty bin before the first pair to that after the last
        bounds = (low[place], median[place], high[place])
        drawn.append(Violin(MIDDLES[span], shares[span], *bounds, f"Layer {layer}", [layer, None]))
    names = ("mode", "median", "mean", "quantile_5", "quantile_95", *(f"share_at_{middle:.3f}" for middle in MIDDLES))
    return Drawing(
        violins(drawn, palette, "5 % to 95 % of pairs:"),
        layout(palette, positions(palette, "after layer", layers), axis(palette, "cosine of two tokens", grid=True)),
        listed("Median cosine of two tokens after each layer", layers, median.tolist(), "layer"),
        ("layer", *names),
        [
            [layer, *plain([mode[at], median[at], mean[at], low[at], high[at], *found[at, first : first + BINS]], 7)]
            for at, layer in enumerate(layers)
        ],
    )


TOKEN_SIMILARITY = Figure(
    name="token_similarity",
    title="Token similarity",
    doc="How alike the tokens have become after each layer: violins of the cosines between all pairs of hidden states. "
    "The dot is the median, the bar spans 5 % to 95 % of the pairs.",
    not_="Not similarity of meaning: a few large dimensions that all tokens share can put every cosine near 1. The outline is a histogram of 40 bins, not smoothed.",
    citation="Violins of cosines as in Masumura & Taki 2025, On the Role of Hidden States of Modern Hopfield Network in Transformer",
    range=(-1.0, 1.0),
    measures=(NAME,),
    draw=draw,
)
