"""Parts of pictures: axes, names of tokens, maps side by side, grids of heads, legends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .figure import Array, Figure, coloured

# Name, a few words, and the map [Q, K] of one panel.
Panel = tuple[str, str, Array]

MODEL = "MiniLM"
# Tokens of the longer example that label its maps.
NAMED = ("[CLS]", "clock", "noon", "baker", "bread", "children", "[SEP]")


def axes(
    figure: Figure,
    frame: tuple[float, float, float, float],
    ticks: Sequence[float],
    top: float,
    words: str,
    *,
    digits: int = 1,
    bottom: float = 0.0,
) -> None:
    """Draw the left axis and the grid of a chart in frame (x, y, width, height) with values bottom..top."""
    x, y, width, height = frame
    labels = [f"{tick:.{digits}f}".replace("-", "\N{MINUS SIGN}") for tick in ticks]
    for tick, label in zip(ticks, labels, strict=True):
        place = y + height * (top - tick) / (top - bottom)
        figure.line([(x, place), (x + width, place)], colour="line")
        figure.text(x - 6, place + 4, label, size=10, anchor="end", colour="muted")
    beside = max(34, 10 + 6 * max(map(len, labels)))  # so that the words are left of the longest label
    figure.text(x - beside, y + height / 2, words, size=11, anchor="middle", turn=-90, colour="muted")


def ticks(figure: Figure, tokens: Sequence[str], x: float, y: float, cell: float, *, left: bool) -> None:
    """Draw the names of tokens, all of them if there is room: as columns under a map at (x, y + n cells), and as rows to its left."""
    n, last = len(tokens), -np.inf
    for place, token in enumerate(tokens):
        centre = (place + 0.5) * cell
        if (token not in NAMED and cell < 11) or centre - last < 10:
            continue
        last = centre
        figure.line([(x + centre, y + n * cell + 1), (x + centre, y + n * cell + 4)])
        figure.text(x + centre + 3.5, y + n * cell + 8, token, size=10, anchor="end", turn=-90, colour="muted")
        if left:
            figure.line([(x - 4, y + centre), (x - 1, y + centre)])
            figure.text(x - 7, y + centre + 3.5, token, size=10, anchor="end", colour="muted")


def panels(title: str, a: Any, maps: Sequence[Panel], foot: str, *, one_scale: bool = True) -> Figure:
    """Draw maps side by side, on one colour scale, or each on its own with its maximum below it."""
    tokens = [token.text for token in a.tokens]
    n, count = len(tokens), len(maps)
    cell = min((760 - 62 - 20 * count) / count / n, 300 / n)
    y, size, largest = 44, n * cell, float(max(np.abs(values).max() for _, _, values in maps))
    figure = Figure(760, y + size + (110 if one_scale else 128), title)
    for place, (heading, words, values) in enumerate(maps):
        x, own = 62 + place * (size + 20), largest if one_scale else float(values.max())
        figure.text(x, 18, heading, bold=True)
        figure.text(x, 34, words, size=11, colour="muted")
        figure.image(x, y, size, size, coloured(values, own))
        ticks(figure, tokens, x, y, cell, left=place == 0)
        if not one_scale:
            figure.legend(x, y + size + 70, own, signed=False, width=70)
    figure.text(62, y + size + (88 if one_scale else 116), foot, size=11, colour="muted")
    if one_scale:
        figure.legend(502, y + size + 78, largest, signed=any(values.min() < 0 for _, _, values in maps))
    return figure


def grid(figure: Figure, x: float, y: float, values: Array, largest: float, cell: float = 26) -> None:
    """Draw one square per head [L, H], with the layer at the left and the head above."""
    layers, heads = values.shape
    figure.image(x, y, heads * cell, layers * cell, coloured(values, largest))
    for layer in range(layers):
        figure.text(x - 6, y + (layer + 0.5) * cell + 4, str(layer), size=10, anchor="end", colour="muted")
    for head in range(heads):
        figure.text(x + (head + 0.5) * cell, y - 6, str(head), size=10, anchor="middle", colour="muted")


def dots(
    series: Sequence[tuple[str, str, Array]],
    steps: Sequence[float],
    words: str,
    note: str,
    *,
    digits: int = 0,
) -> Figure:
    """Draw a number per head, by layer: label, colour and values [L, H] of each series."""
    x, y, width, height, top = 66.0, 26.0, 660.0, 240.0, float(steps[-1])
    figure = Figure(760, 340, f"{note}, every head of {MODEL}")
    axes(figure, (x, y, width, height), steps, top, words, digits=digits)
    layers, heads = series[0][2].shape
    step = width / layers
    for layer in range(layers):
        figure.text(x + (layer + 0.5) * step, y + height + 18, f"layer {layer}", size=11, anchor="middle")
        for _, colour, values in series:
            for head in range(heads):
                place = x + layer * step + step * (head + 1) / (heads + 1)
                figure.dot(place, y + height * (1 - min(float(values[layer, head]), top) / top), colour=colour)
    key(figure, x, y + height + 42, [(label, colour) for label, colour, _ in series], note)
    return figure


def key(figure: Figure, x: float, y: float, series: Sequence[tuple[str, str]], note: str = "") -> None:
    """Draw a legend: a dot and a label for each series, and a note after them."""
    for label, colour in series:
        figure.dot(x + 3, y - 4, colour=colour)
        figure.text(x + 12, y, label, size=11, colour="muted")
        x += 30 + 6.2 * len(label)
    figure.text(x + 10, y, note, size=11, colour="muted")


def lines(figure: Figure, x: float, y: float, solid: str, dashed: str, colour: str = "more-end") -> None:
    """Draw a legend of the solid and the dashed line."""
    figure.line([(x, y - 4), (x + 22, y - 4)], colour=colour, width=2)
    figure.text(x + 28, y, solid, size=11, colour="muted")
    right = x + 60 + 6.2 * len(solid)
    figure.line([(right, y - 4), (right + 22, y - 4)], colour="less", width=1.5, dashed=True)
    figure.text(right + 28, y, dashed, size=11, colour="muted")
