"""Pictures of the measures of projections, which do not depend on a text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import headscope

from . import samples
from .figure import Array, Figure, Point, coloured
from .shapes import MODEL, axes, grid, lines


def draw_output_overlap(a: Any) -> Figure:
    """One square of heads against heads per layer."""
    values = a.measures["output_overlap"]["weights"]
    off = values[:, ~np.eye(values.shape[1], dtype=bool)]
    largest, side, gap = float(off.max()), 106.0, 12.0
    figure = Figure(760, 210, f"Overlap of the output spaces of the heads of {MODEL}")
    for layer, square in enumerate(values):
        left = 40 + layer * (side + gap)
        figure.text(left, 20, f"layer {layer}", size=11, bold=True)
        figure.text(left, 36, f"mean {off[layer].mean():.2f}", size=10, colour="muted")
        figure.image(left, 46, side, side, coloured(np.minimum(square, largest), largest))
    figure.legend(40, 176, largest, signed=False)
    figure.text(
        300,
        184,
        f"the diagonal is 1; the scale ends at the largest other value, {largest:.2f}",
        size=10,
        colour="muted",
    )
    return figure


def draw_spectrum(a: Any, measure: str) -> Figure:
    """Cumulative shares, of the heads of one layer or of whole layers, against random projections of the same size."""
    import torch

    from headscope.measures.projections import COUNTS, product_values, summary

    whole = measure == "qk_spectrum_layer"
    shape, chosen = ((384, 384), slice(None)) if whole else ((384, 32), slice(3, 4))
    first = headscope.MEASURES[measure].columns.index("share_1")
    found = a.measures[measure]["weights"][chosen, ..., first:]
    generator = torch.Generator().manual_seed(0)
    query, key = (torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(2))
    random = summary(product_values(query, key))[first:].numpy()
    used = [place for place, count in enumerate(COUNTS) if count < 2 * shape[1]]
    x, y, width, height = 66.0, 26.0, 660.0, 240.0
    figure = Figure(760, 352, f"Cumulative share of the energy of query-key products of {MODEL}")
    axes(figure, (x, y, width, height), (0, 0.25, 0.5, 0.75, 1), 1.0, "share of the energy", digits=2)
    places = [x + width * (place + 0.5) / len(used) for place in used]
    for row in found.reshape(-1, found.shape[-1]):
        figure.line(_curve(row, used, places, y, height), colour="more", width=1.2)
    figure.line(_curve(random, used, places, y, height), colour="less", width=1.5, dashed=True)
    for place in used:
        count = str(min(COUNTS[place], shape[1]))
        figure.text(places[place], y + height + 17, count, size=10, anchor="middle", colour="muted")
    middle = x + width / 2
    figure.text(middle, y + height + 34, "number of largest singular values", size=11, anchor="middle", colour="muted")
    words = "sums over the heads of a layer, layers 0 to 5" if whole else "heads of layer 3"
    lines(figure, x, y + height + 58, words, "random projections", "more")
    return figure


def _curve(row: Array, used: Sequence[int], places: Sequence[float], y: float, height: float) -> list[Point]:
    return [(places[place], y + height * (1 - float(row[place]))) for place in used]


def draw_offsets(a: Any) -> Figure:
    """Cosine with the product at offset 0, a line per head."""
    from headscope.measures.projections import OFFSETS

    cosines = np.stack(
        [samples.columns(a, "qk_offset", f"cosine_{offset}")[0] for offset in OFFSETS], -1
    )  # [H, offsets]
    names = ("all planes", "the four slowest", "a middle one", "the fastest")
    x, y, width, height = 66.0, 26.0, 660.0, 240.0
    figure = Figure(760, 352, "Cosine of query-key products with those at offset 0, by offset")
    axes(figure, (x, y, width, height), (-1, -0.5, 0, 0.5, 1), 1.0, "cosine with offset 0", digits=1, bottom=-1.0)
    places = [x + width * (place + 0.5) / len(OFFSETS) for place in range(len(OFFSETS))]
    right = x
    for row, name, colour, dashed in zip(
        cosines, names, ("ink", "more", "less", "ink"), (False, False, False, True), strict=True
    ):
        points = [(at, y + height * (1 - float(value)) / 2) for at, value in zip(places, row, strict=True)]
        figure.line(points, colour=colour, width=1.5, dashed=dashed)
        figure.line([(right, 332), (right + 22, 332)], colour=colour, width=1.5, dashed=dashed)
        figure.text(right + 28, 336, name, size=11, colour="muted")
        right += 60 + 6.2 * len(name)
    for at, offset in zip(places, OFFSETS, strict=True):
        figure.text(at, y + height + 17, str(offset), size=10, anchor="middle", colour="muted")
    middle = x + width / 2
    figure.text(
        middle, y + height + 34, "offset: tokens from the key to the query", size=11, anchor="middle", colour="muted"
    )
    return figure


def draw_copying() -> Figure:
    """The copying score of every head of a small GPT."""
    a = headscope.analyze("twin-gpt-softmax", "The cat", lenses=["weights"], measures=["ov_copying"])
    figure = Figure(760, 262, "Copying score of every head of a small GPT")
    figure.text(30, 14, "copying score", bold=True)
    grid(figure, 30, 38, a.measures["ov_copying"]["weights"], 1.0)
    figure.text(30, 216, "layers down, heads across; blue: raises what it attends to", size=11, colour="muted")
    figure.legend(30, 232, 1.0, signed=True)
    return figure


PICTURES: dict[str, Callable[[], Figure]] = {
    "ov_copying": draw_copying,
    "output_overlap": lambda: draw_output_overlap(samples.measured()),
    "qk_spectrum": lambda: draw_spectrum(samples.measured(), "qk_spectrum"),
    "qk_spectrum_layer": lambda: draw_spectrum(samples.measured(), "qk_spectrum_layer"),
    "qk_offset": lambda: draw_offsets(samples.rotary()),
}
