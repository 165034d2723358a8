"""Pictures of the measures of rows, and of ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from . import samples
from .figure import Figure
from .samples import TOKENS, columns
from .shapes import axes, dots


def draw_entropy(a: Any) -> Figure:
    """Every head's mean entropy, by layer."""
    means = a.measures["entropy"]["weights"].mean(-1)
    n = len(a.tokens)
    x, y, width, height, top = 66.0, 30.0, 620.0, 240.0, 4.0
    figure = Figure(760, 330, "Mean entropy of every head of MiniLM")
    axes(figure, (x, y, width, height), (0, 1, 2, 3, 4), top, "mean entropy, nats", digits=0)
    for count in (1, 2, 5, 10, 20, n):
        figure.text(x + width + 8, y + height * (1 - np.log(count) / top) + 4, str(count), size=10, colour="muted")
    figure.text(
        x + width + 52, y + height / 2, "perplexity, tokens", size=11, anchor="middle", turn=-90, colour="muted"
    )
    most = y + height * (1 - np.log(n) / top)
    figure.line([(x, most), (x + width, most)], colour="ink", dashed=True)
    figure.text(x + width - 2, most + 13, f"the same weight on all {n} tokens", size=10, anchor="end", colour="muted")
    step = width / means.shape[0]
    for layer, row in enumerate(means):
        figure.text(x + (layer + 0.5) * step, y + height + 18, f"layer {layer}", size=11, anchor="middle")
        for head, value in enumerate(row):
            figure.dot(x + layer * step + step * (head + 1) / (len(row) + 1), y + height * (1 - value / top))
    figure.text(
        x, y + height + 42, "one dot per head, in order within its layer; mean over queries", size=11, colour="muted"
    )
    return figure


def draw_both(a: Any, measure: str, steps: Sequence[float], words: str) -> Figure:
    """A measure of rows for the weights and for effective attention, in the mean over queries."""
    both = (("weights", "less", "weights"), ("effective attention", "more", "effective"))
    series = [(label, colour, a.measures[measure][lens].mean(-1)) for label, colour, lens in both]
    return dots(series, steps, words, f"mean over {TOKENS} queries")


def draw_negative_share(a: Any) -> Figure:
    """Both signed lenses, in the mean over queries."""
    both = (("effective attention", "more", "effective"), ("with rows that sum to 1", "less", "effective-simplex"))
    series = [(label, colour, a.measures["negative_share"][lens].mean(-1)) for label, colour, lens in both]
    return dots(series, (0, 0.1, 0.2, 0.3, 0.4, 0.5), "negative share", f"mean over {TOKENS} queries", digits=1)


def draw_rank(a: Any, output: Any) -> Figure:
    """Effective rank of maps and of outputs."""
    maps, outputs = columns(a, "rank", "effective"), columns(output, "rank", "effective")
    series = [("map", "less", maps), ("output", "more", outputs)]
    return dots(series, (0, 16, 32, 48, 64), "effective rank", f"{TOKENS} tokens, head width 32")


def draw_head_dimension(a: Any) -> Figure:
    """Dimensions that hold most of the variance."""
    series = [("90 % of the variance", "more", columns(a, "head_dimension", "dims_90"))]
    return dots(series, (0, 8, 16, 24, 32), "dimensions", f"{TOKENS} tokens, head width 32")


PICTURES: dict[str, Callable[[], Figure]] = {
    "entropy": lambda: draw_entropy(samples.middle()),
    "participation_ratio": lambda: draw_both(
        samples.measured(), "participation_ratio", (0, 16, 32, 48, 64), "participation ratio, tokens"
    ),
    "absolute_entropy": lambda: draw_both(
        samples.measured(), "absolute_entropy", (0, 1, 2, 3, 4, 5), "entropy of magnitudes, nats"
    ),
    "negative_share": lambda: draw_negative_share(samples.measured()),
    "rank": lambda: draw_rank(samples.measured(), samples.otherwise()),
    "head_dimension": lambda: draw_head_dimension(samples.measured()),
}
