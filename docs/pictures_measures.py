"""The pictures of the measures of rows, ranks, hidden states and projections; see pictures.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from pictures import LONG, Array, Figure, _axes, coloured

LENSES = ("weights", "effective", "effective-simplex")
MEASURES = (
    *(
        "participation_ratio",
        "absolute_entropy",
        "negative_share",
        "rank",
        "residual_ratio",
        "token_similarity",
        "frequency",
    ),
    *("output_overlap", "qk_spectrum", "qk_spectrum_layer", "head_dimension"),
)
TOKENS = 64
MODEL = "MiniLM"
Point = tuple[float, float]


def dots(
    name: str,
    series: Sequence[tuple[str, str, Array]],
    ticks: Sequence[float],
    words: str,
    note: str,
    *,
    digits: int = 0,
) -> None:
    """A number per head, by layer: label, colour and values [L, H] of each series."""
    x, y, width, height, top = 66.0, 26.0, 660.0, 240.0, float(ticks[-1])
    figure = Figure(760, 340, f"{note}, every head of {MODEL}")
    _axes(figure, (x, y, width, height), ticks, top, words, digits=digits)
    layers, heads = series[0][2].shape
    step = width / layers
    for layer in range(layers):
        figure.text(x + (layer + 0.5) * step, y + height + 18, f"layer {layer}", size=11, anchor="middle")
        for _, colour, values in series:
            for head in range(heads):
                place = x + layer * step + step * (head + 1) / (heads + 1)
                figure.dot(place, y + height * (1 - min(float(values[layer, head]), top) / top), colour=colour)
    _key(figure, x, y + height + 42, [(label, colour) for label, colour, _ in series], note)
    figure.write(name)


def _key(figure: Figure, x: float, y: float, series: Sequence[tuple[str, str]], note: str) -> None:
    for label, colour in series:
        figure.dot(x + 3, y - 4, colour=colour)
        figure.text(x + 12, y, label, size=11, colour="muted")
        x += 30 + 6.2 * len(label)
    figure.text(x + 10, y, note, size=11, colour="muted")


def columns(a: Any, measure: str, column: str, lens: str = "weights") -> Array:
    """One column of a measure, by its name."""
    import headscope

    values: Array = a.measures[measure][lens][..., headscope.MEASURES[measure].columns.index(column)]
    return values


def draw_rows(a: Any) -> None:
    """Participation ratio, entropy of magnitudes and negative share, in the mean over queries."""
    both = (("weights", "less", "weights"), ("effective attention", "more", "effective"))
    for measure, ticks, words in (
        ("participation_ratio", (0, 16, 32, 48, 64), "participation ratio, tokens"),
        ("absolute_entropy", (0, 1, 2, 3, 4, 5), "entropy of magnitudes, nats"),
    ):
        series = [(label, colour, a.measures[measure][lens].mean(-1)) for label, colour, lens in both]
        dots(measure, series, ticks, words, f"mean over {TOKENS} queries")
    signed = (("effective attention", "more", "effective"), ("with rows that sum to 1", "less", "effective-simplex"))
    series = [(label, colour, a.measures["negative_share"][lens].mean(-1)) for label, colour, lens in signed]
    dots(
        "negative_share",
        series,
        (0, 0.1, 0.2, 0.3, 0.4, 0.5),
        "negative share",
        f"mean over {TOKENS} queries",
        digits=1,
    )


def draw_ranks(a: Any, output: Any) -> None:
    """Effective rank of maps and outputs; dimensions that hold most of the variance."""
    series = [
        ("map", "less", columns(a, "rank", "effective")),
        ("output", "more", columns(output, "rank", "effective")),
    ]
    dots("rank", series, (0, 16, 32, 48, 64), "effective rank", f"{TOKENS} tokens, head width 32")
    series = [("90 % of the variance", "more", columns(a, "head_dimension", "dims_90"))]
    dots("head_dimension", series, (0, 8, 16, 24, 32), "dimensions", f"{TOKENS} tokens, head width 32")


def draw_residual_ratio(a: Any) -> None:
    """One number per layer."""
    values = a.measures["residual_ratio"]["weights"]
    x, y, width, height = 66.0, 26.0, 660.0, 200.0
    figure = Figure(760, 270, f"Residual ratio of the hidden states of {MODEL}")
    _axes(figure, (x, y, width, height), (0, 0.25, 0.5, 0.75, 1), 1.0, "residual ratio", digits=2)
    step = width / len(values)
    points = [(x + (layer + 0.5) * step, y + height * (1 - float(value))) for layer, value in enumerate(values)]
    figure.line(points, colour="more-end", width=2)
    for layer, point in enumerate(points):
        figure.dot(*point, colour="more-end")
        figure.text(point[0], y + height + 18, f"after layer {layer}", size=11, anchor="middle")
    figure.write("residual_ratio")


def draw_token_similarity(plain: Any, centred: Any) -> None:
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
    _key(figure, x, y + height + 42, [("plain", "muted"), ("mean over tokens taken out", "more")], f"{TOKENS} tokens")
    figure.write("token_similarity")


def draw_frequency(a: Any) -> None:
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
    _lines(figure, x, y + height + 90, "hidden states", "the same in random order")
    figure.write("frequency")


def _lines(figure: Figure, x: float, y: float, solid: str, dashed: str, colour: str = "more-end") -> None:
    figure.line([(x, y - 4), (x + 22, y - 4)], colour=colour, width=2)
    figure.text(x + 28, y, solid, size=11, colour="muted")
    right = x + 60 + 6.2 * len(solid)
    figure.line([(right, y - 4), (right + 22, y - 4)], colour="less", width=1.5, dashed=True)
    figure.text(right + 28, y, dashed, size=11, colour="muted")


def draw_output_overlap(a: Any) -> None:
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
    figure.write("output_overlap")


def draw_spectra(a: Any) -> None:
    """Cumulative shares of heads and of whole layers, against random projections of the same size."""
    import torch

    import headscope
    from headscope.measures.projections import COUNTS, product_values, summary

    first = headscope.MEASURES["qk_spectrum"].columns.index("share_1")
    generator = torch.Generator().manual_seed(0)
    for measure, shape, layers in (("qk_spectrum", (384, 32), [3]), ("qk_spectrum_layer", (384, 384), range(6))):
        found = a.measures[measure]["weights"][list(layers), ..., first:]
        query, key = (torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(2))
        random = summary(product_values(query, key))[first:].numpy()
        used = [place for place, count in enumerate(COUNTS) if count < 2 * shape[1]]
        x, y, width, height = 66.0, 26.0, 660.0, 240.0
        figure = Figure(760, 352, f"Cumulative share of the energy of query-key products of {MODEL}")
        _axes(figure, (x, y, width, height), (0, 0.25, 0.5, 0.75, 1), 1.0, "share of the energy", digits=2)
        places = [x + width * (place + 0.5) / len(used) for place in used]
        for row in found.reshape(-1, found.shape[-1]):
            figure.line(_curve(row, used, places, y, height), colour="more", width=1.2)
        figure.line(_curve(random, used, places, y, height), colour="less", width=1.5, dashed=True)
        for place in used:
            figure.text(
                places[place],
                y + height + 17,
                str(min(COUNTS[place], shape[1])),
                size=10,
                anchor="middle",
                colour="muted",
            )
        figure.text(
            x + width / 2,
            y + height + 34,
            "number of largest singular values",
            size=11,
            anchor="middle",
            colour="muted",
        )
        words = "heads of layer 3" if measure == "qk_spectrum" else "sums over the heads of a layer, layers 0 to 5"
        _lines(figure, x, y + height + 58, words, "random projections", "more")
        figure.write(measure)


def _curve(row: Array, used: Sequence[int], places: Sequence[float], y: float, height: float) -> list[Point]:
    return [(places[place], y + height * (1 - float(row[place]))) for place in used]


def draw() -> None:
    """All of them."""
    import headscope

    model = headscope.load("minilm")
    a = headscope.analyze(model, LONG, lenses=LENSES, measures=MEASURES, max_tokens=TOKENS, maps=False)
    other = ({"name": "rank", "of": "output"}, {"name": "token_similarity", "centred": True})
    b = headscope.analyze(model, LONG, lenses=("weights",), measures=other, max_tokens=TOKENS, maps=False)
    draw_rows(a)
    draw_ranks(a, b)
    draw_residual_ratio(a)
    draw_token_similarity(a, b)
    draw_frequency(a)
    draw_output_overlap(a)
    draw_spectra(a)


if __name__ == "__main__":
    draw()
