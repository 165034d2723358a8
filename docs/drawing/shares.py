"""Pictures of the measures that compare a part of a map, or of an output, with the whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from . import samples
from .figure import Figure, coloured, number
from .shapes import axes


def draw_null_share() -> Figure:
    """Null share of all heads for one text truncated to increasing lengths."""
    counts = [8, 16, 24, 31, 32, 33, 34, 36, 40, 44, 48, 56, 64, 80, 96, 112, 128]
    shares = []
    for count in counts:
        a = samples.analysed(samples.LONG, (), ("null_share",), max_tokens=count, maps=False)
        shares.append(np.sort(a.measures["null_share"]["weights"].ravel()))
    values = np.stack(shares)
    x, y, width, height = 66.0, 26.0, 650.0, 250.0
    figure = Figure(760, 352, "Null share of all heads of MiniLM against the number of tokens")

    def at(count: float, share: float) -> tuple[float, float]:
        return x + width * count / 128, y + height * (1 - share)

    axes(figure, (x, y, width, height), (0, 0.25, 0.5, 0.75, 1), 1.0, "null share", digits=2)
    for low, high, opacity in ((0, 71, 0.12), (18, 53, 0.25)):
        edge = [at(c, v) for c, v in zip(counts, values[:, high], strict=True)]
        figure.area(
            [*edge, *reversed([at(c, v) for c, v in zip(counts, values[:, low], strict=True)])],
            colour="more",
            opacity=opacity,
        )
    figure.line([at(c, v) for c, v in zip(counts, np.median(values, axis=1), strict=True)], colour="more-end", width=2)
    random = [(c, max(0.0, 1 - 32 / c)) for c in range(8, 129)]
    figure.line([at(*point) for point in random], colour="less", width=1.5, dashed=True)
    figure.line([at(32, 0), at(32, 1)], colour="ink")
    figure.text(at(32, 0)[0] - 6, y + 12, "32 tokens: head width", size=10, anchor="end", colour="muted")
    for count in (0, 32, 64, 96, 128):
        figure.text(at(count, 0)[0], y + height + 17, str(count), size=10, anchor="middle", colour="muted")
    figure.text(x + width / 2, y + height + 34, "tokens", size=11, anchor="middle", colour="muted")
    figure.line([(x, y + height + 54), (x + 22, y + height + 54)], colour="more-end", width=2)
    figure.text(
        x + 28, y + height + 58, "median of 72 heads; bands: half of them, all of them", size=11, colour="muted"
    )
    figure.line([(x + 360, y + height + 54), (x + 382, y + height + 54)], colour="less", width=1.5, dashed=True)
    figure.text(x + 388, y + height + 58, "a random row: 1 − 32 / tokens", size=11, colour="muted")
    return figure


def draw_null_share_rows(a: Any) -> Figure:
    """Null share of every query in the heads of one layer."""
    layer = 3
    values = a.measures["null_share_rows"]["weights"][layer]
    tokens = [token.text for token in a.tokens]
    heads, n = values.shape
    x, y, cell, row = 66, 40, 15.6, 17
    figure = Figure(760, y + heads * row + 124, f"Null share of every query in the heads of layer {layer} of MiniLM")
    figure.text(x, 22, f"null share of each query, heads of layer {layer}", bold=True)
    figure.image(x, y, n * cell, heads * row, coloured(values**2, 1.0))
    for head in range(heads):
        figure.text(x - 6, y + (head + 0.5) * row + 4, f"{layer}.{head}", size=11, anchor="end")
    for place, token in enumerate(tokens):
        figure.text(x + (place + 0.5) * cell + 4, y + heads * row + 6, token, size=11, anchor="end", turn=-90)
    foot = y + heads * row + 92
    figure.image(x, foot, 120, 8, coloured(np.linspace(0, 1, 64)[None] ** 2, 1.0))
    for value in (0.0, 1.0):
        figure.text(x + 120 * value, foot + 21, number(value), size=10, anchor="middle", colour="muted")
    figure.text(x + 138, foot + 8, "linear scale", size=10, colour="muted")
    return figure


def draw_leverage(a: Any) -> Figure:
    """Weight received and leverage of every token in one head."""
    layer, head = 4, 5
    tokens = [token.text for token in a.tokens]
    received = a.maps["weights"][layer, head].mean(0)
    leverage = a.measures["leverage"]["weights"][layer, head]
    n, x, step = len(tokens), 66, 15.6
    figure = Figure(760, 390, f"Weight received and leverage of every token in head {layer}.{head} of MiniLM")
    for y, height, values, title in ((40, 100, received, "mean weight received"), (180, 100, leverage, "leverage")):
        figure.text(x, y - 12, title, bold=True)
        for value in (0, 0.5, 1):
            place = y + height * (1 - value)
            figure.line([(x, place), (x + n * step, place)], colour="line")
            figure.text(x - 6, place + 4, number(value), size=10, anchor="end", colour="muted")
        for key, value in enumerate(values):
            figure.box(
                x + key * step + 2,
                y + height * (1 - value),
                step - 4,
                max(height * float(value), 0.8),
                colour="accent" if key == received.argmax() else "more",
            )
    mean = 180 + 100 * (1 - 32 / n)
    figure.line([(x, mean), (x + n * step, mean)], colour="ink", dashed=True)
    figure.text(x + n * step, 170, f"dashed: mean, 32 / {n}", size=10, anchor="end", colour="muted")
    for place, token in enumerate(tokens):
        figure.text(x + (place + 0.5) * step + 4, 286, token, size=11, anchor="end", turn=-90)
    figure.text(x, 378, f"head {layer}.{head}; in red the token that receives most", size=11, colour="muted")
    return figure


def draw_special_broadcast(a: Any) -> Figure:
    """Every head's weight on special tokens against their share of its output."""
    special = np.array([token.kind == "special" for token in a.tokens])
    weight = a.maps["weights"][:, :, ~special][..., special].sum(-1).mean(-1)
    share = a.measures["special_broadcast"]["weights"]
    x, y, width, height = 66.0, 26.0, 650.0, 220.0
    figure = Figure(760, 316, "Special tokens in the weights and in the output of every head of MiniLM")
    top = 0.25
    axes(figure, (x, y, width, height), (0, 0.05, 0.1, 0.15, 0.2, 0.25), top, "broadcast by special tokens", digits=2)
    figure.line([(x, y + height), (x + width * top, y)], colour="ink", dashed=True)
    figure.text(x + width * top + 6, y + 8, "as much output as weight", size=10, colour="muted")
    for layer, row in enumerate(share):
        for head, value in enumerate(row):
            place = x + width * float(weight[layer, head]), y + height * (1 - float(value) / top)
            figure.dot(*place)
            if value > 0.14 or weight[layer, head] > 0.7:
                figure.text(place[0] + 6, place[1] + 4, f"{layer}.{head}", size=10, colour="muted")
    for value in (0, 0.25, 0.5, 0.75, 1):
        figure.text(x + width * value, y + height + 17, number(value), size=10, anchor="middle", colour="muted")
    figure.text(x + width / 2, y + height + 36, "weight on special tokens", size=11, anchor="middle", colour="muted")
    foot = f"one dot per head; {len(a.tokens)} tokens, two of them special; queries that are words"
    figure.text(x, y + height + 58, foot, size=11, colour="muted")
    return figure


def draw_mixing_ratio(a: Any) -> Figure:
    """Every token's mixing ratio, layer by layer."""
    ratios = a.measures["mixing_ratio"]["norm-residual"]
    x, y, width, height = 66.0, 26.0, 650.0, 220.0
    figure = Figure(760, 316, "Mixing ratio of every token in the layers of MiniLM")
    axes(figure, (x, y, width, height), (0, 0.25, 0.5, 0.75, 1), 1.0, "mixing ratio", digits=2)
    figure.line([(x, y + height / 2), (x + width, y + height / 2)], colour="ink", dashed=True)
    figure.text(x + width - 2, y + height / 2 - 5, "what rollout takes for granted", size=10, anchor="end")
    step = width / len(ratios)
    special = [token.kind == "special" for token in a.tokens]
    for layer, row in enumerate(ratios):
        figure.text(x + (layer + 0.5) * step, y + height + 18, f"layer {layer}", size=11, anchor="middle")
        for place, value in enumerate(row):
            at = x + layer * step + step * (place + 1) / (len(row) + 1)
            figure.dot(at, y + height * (1 - float(value)), colour="less" if special[place] else "more", radius=2.4)
    foot = "one dot per token, in order within its layer; the first and the last are [CLS] and [SEP]"
    figure.text(x, y + height + 44, foot, size=11, colour="muted")
    return figure


def draw_gate(a: Any) -> Figure:
    """Gates of four heads of a small random model: how far they are open, and how much of them is closed."""
    found = a.measures["gate"]["weights"][0], samples.gated("closed").measures["gate"]["weights"][0]
    heads, n = found[0].shape
    x, cell, row = 66, 27, 20
    figure = Figure(760, 330, "Gates of the heads of a small random model, and the share of them that is closed")
    titles = ("mean size of the gate", "share of dimensions in which it is below 0.1")
    for values, title, y in zip(found, titles, (40, 176), strict=True):
        figure.text(x, y - 12, title, bold=True)
        figure.image(x, y, n * cell, heads * row, coloured(values**2, 1.0))
        for head in range(heads):
            figure.text(x - 6, y + (head + 0.5) * row + 4, f"0.{head}", size=11, anchor="end")
        for place in range(n):
            figure.text(x + (place + 0.5) * cell, y + heads * row + 14, str(place), size=10, anchor="middle")
    figure.image(x, 290, 120, 8, coloured(np.linspace(0, 1, 64)[None] ** 2, 1.0))
    for value in (0.0, 1.0):
        figure.text(x + 120 * value, 311, number(value), size=10, anchor="middle", colour="muted")
    figure.text(x + 138, 298, "linear scale; columns are the queries", size=10, colour="muted")
    return figure


PICTURES: dict[str, Callable[[], Figure]] = {
    "null_share": draw_null_share,
    "null_share_rows": lambda: draw_null_share_rows(samples.middle()),
    "leverage": lambda: draw_leverage(samples.middle()),
    "special_broadcast": lambda: draw_special_broadcast(samples.middle()),
    "gate": lambda: draw_gate(samples.gated()),
    "mixing_ratio": lambda: draw_mixing_ratio(samples.layers()),
}
