"""Pictures of the measures of hidden states."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from . import samples
from .figure import Figure
from .samples import TOKENS
from .shapes import MODEL, axes, key, lines


def draw_residual_ratio(a: Any) -> Figure:
    """One number per layer."""
    values = a.measures["residual_ratio"]["weights"]
    x, y, width, height = 66.0, 26.0, 660.0, 200.0
    figure = Figure(760, 270, f"Residual ratio of the hidden states of {MODEL}")
    axes(figure, (x, y, width, height), (0, 0.25, 0.5, 0.75, 1), 1.0, "residual ratio", digits=2)
    step = width / len(values)
    points = [(x + (layer + 0.5) * step, y + height * (1 - float(value))) for layer, value in enumerate(values)]
    figure.line(points, colour="more-end", width=2)
    for layer, point in enumerate(points):
        figure.dot(*point, colour="more-end")
        figure.text(point[0], y + height + 18, f"after layer {layer}", size=11, anchor="middle")
    return figure


def draw_token_similarity(plain: Any, centred: Any) -> Figure:
    """Histograms of both kinds of cosine, back to back."""
    x, y, width, height = 66.0, 26.0, 660.0, 240.0
    figure = Figure(760, 340, f"Cosines between the hidden states of {MODEL}")
    for value in (-1, -0.5, 0, 0.5, 1):
        place = y + height * (1 - (value + 1) / 2)
        figure.line([(x, place), (x + width, place)], colour="line")
        figure.text(x - 6, place + 4, f"{value:g}".replace("-", "−"), size=10, anchor="end", colour="muted")
    figure.text(x - 38, y + height / 2, "cosine", size=11, anchor="middle", turn=-90, colour="muted")
    bins = [analysis.measures["token_similarity"]["weights"][:, 5:] for analysis in (plain, centred)]
    layers = len(bins[0])
    step, scale = width / layers, width / layers * 0.46 / max(float(part.max()) for part in bins)
    for layer in range(layers):
        middle = x + (layer + 0.5) * step
        figure.text(middle, y + height + 18, f"layer {layer}", size=11, anchor="middle")
        for side, colour, part in ((-1, "muted", bins[0]), (1, "more", bins[1])):
            for place, share in enumerate(part[layer]):
                length, top = float(share) * scale, y + height * (1 - (place + 1) / 40)
                if length > 0.05:
                    figure.box(middle if side > 0 else middle - length, top, length, height / 40 - 0.6, colour=colour)
    key(figure, x, y + height + 42, [("plain", "muted"), ("mean over tokens taken out", "more")], f"{TOKENS} tokens")
    return figure


def draw_frequency(a: Any) -> Figure:
    """Shares by period, one panel per layer."""
    values = a.measures["frequency"]["weights"]
    bands = ("2–4", "4–8", "8–16", "16–32", "32–64", "64–128", "128+")
    x, y, gap, height = 66.0, 40.0, 14.0, 170.0
    width = (676 - gap * (len(values) - 1)) / len(values)
    top = float(np.ceil(values[:, 1:].max() * 10) / 10)
    figure = Figure(760, 318, f"Energy of the hidden states of {MODEL} by period")
    for layer, row in enumerate(values):
        left = x + layer * (width + gap)
        figure.text(left, 18, f"after layer {layer}", size=11, bold=True)
        figure.text(left, 32, f"mean: {row[0]:.0%}", size=10, colour="muted")
        for tick in (0.0, top / 2, top):
            place = y + height * (1 - tick / top)
            figure.line([(left, place), (left + width, place)], colour="line")
            if layer == 0:
                figure.text(left - 6, place + 4, f"{tick:.2g}", size=10, anchor="end", colour="muted")
        places = [left + width * (band + 0.5) / len(bands) for band in range(len(bands))]
        for shares, dashed in ((row[1:8], False), (row[8:], True)):
            line = [(place, y + height * (1 - float(share) / top)) for place, share in zip(places, shares, strict=True)]
            figure.line(line, colour="less" if dashed else "more-end", width=1.5 if dashed else 2, dashed=dashed)
        for place, band in zip(places, bands, strict=True):
            figure.text(place + 3.5, y + height + 8, band, size=9, anchor="end", turn=-90, colour="muted")
    figure.text(x - 40, y + height / 2, "share of energy", size=11, anchor="middle", turn=-90, colour="muted")
    figure.text(x, y + height + 62, "period, tokens", size=11, colour="muted")
    lines(figure, x, y + height + 90, "hidden states", "the same in random order")
    return figure


PICTURES: dict[str, Callable[[], Figure]] = {
    "residual_ratio": lambda: draw_residual_ratio(samples.measured()),
    "token_similarity": lambda: draw_token_similarity(samples.measured(), samples.otherwise()),
    "frequency": lambda: draw_frequency(samples.measured()),
}
