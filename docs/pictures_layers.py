"""The pictures of the lenses of whole layers; see pictures.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from pictures import MIDDLE, Array, Figure, _axes, _ticks, coloured

LENSES = ("weights", "norm-residual", "rollout", "alti", "value-zeroing")
# Name, a few words, and the map [Q, K] of one panel.
Panel = tuple[str, str, Array]


def panels(name: str, title: str, a: Any, maps: Sequence[Panel], foot: str) -> None:
    """Maps side by side, each on a scale of its own whose end is written under it."""
    tokens = [token.text for token in a.tokens]
    n, count = len(tokens), len(maps)
    cell, y = min(5.4, (760 - 62 - 20 * count) / count / len(tokens)), 44
    figure = Figure(760, y + n * cell + 114, title)
    for place, (heading, words, values) in enumerate(maps):
        x, largest = 62 + place * (n * cell + 20), float(values.max())
        figure.text(x, 18, heading, bold=True)
        figure.text(x, 34, words, size=11, colour="muted")
        figure.image(x, y, n * cell, n * cell, coloured(values, largest))
        _ticks(figure, tokens, x, y, cell, left=place == 0)
        figure.legend(x, y + n * cell + 66, largest, signed=False, width=70)
    figure.text(62, y + n * cell + 108, foot, size=11, colour="muted")
    figure.write(name)


def mean_weights(a: Any, layer: int) -> Panel:
    """Mean over the heads of a layer."""
    return ("weights", "mean over the heads", a.maps["weights"][layer].mean(0))


def draw_norm_residual(a: Any, layer: int = 3) -> None:
    """One layer's weights, and the lengths of what arrives."""
    norms = a.maps["norm-residual"][layer, 0]
    others = norms * (1 - np.eye(len(norms)))
    maps = (
        mean_weights(a, layer),
        ("norms", "with the residual connection", norms),
        ("norms", "without the diagonal", others),
    )
    foot = f"layer {layer} of MiniLM, {len(norms)} tokens"
    panels("norm-residual", f"Layer {layer} of MiniLM: weights, and norms of what arrives", a, maps, foot)


def draw_rollout(a: Any) -> None:
    """The rollout after the first, a middle and the last layer."""
    rolled = a.maps["rollout"][:, 0]
    maps = [("rollout", f"after layer {layer}", rolled[layer]) for layer in (0, 2, len(rolled) - 1)]
    panels("rollout", "Rollout of MiniLM after three of its layers", a, maps, f"{len(a.tokens)} tokens, residual 0.5")


def draw_alti(a: Any) -> None:
    """ALTI after the first and the last layer, beside the rollout after the last."""
    shares, last = a.maps["alti"][:, 0], len(a.maps["alti"]) - 1
    maps = (
        ("ALTI", "after layer 0", shares[0]),
        ("ALTI", f"after layer {last}", shares[last]),
        ("rollout", f"after layer {last}", a.maps["rollout"][last, 0]),
    )
    panels("alti", "ALTI of MiniLM after its first and last layer", a, maps, f"{len(a.tokens)} tokens")


def draw_value_zeroing(a: Any, layer: int = 3) -> None:
    """One layer's weights and value zeroing."""
    shares = a.maps["value-zeroing"][layer, 0]
    maps = (
        mean_weights(a, layer),
        ("value zeroing", "shares of each row", shares),
    )
    foot = f"layer {layer} of MiniLM, {len(shares)} tokens"
    panels("value-zeroing", f"Layer {layer} of MiniLM: weights and value zeroing", a, maps, foot)


def draw_mixing_ratio(a: Any) -> None:
    """Every token's mixing ratio, layer by layer."""
    ratios = a.measures["mixing_ratio"]["norm-residual"]
    x, y, width, height = 66.0, 26.0, 650.0, 220.0
    figure = Figure(760, 316, "Mixing ratio of every token in the layers of MiniLM")
    _axes(figure, (x, y, width, height), (0, 0.25, 0.5, 0.75, 1), 1.0, "mixing ratio", digits=2)
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
    figure.write("mixing_ratio")


def draw() -> None:
    """All of them."""
    import headscope

    a = headscope.analyze("minilm", MIDDLE, lenses=LENSES, measures=("mixing_ratio",))
    draw_norm_residual(a)
    draw_rollout(a)
    draw_alti(a)
    draw_value_zeroing(a)
    draw_mixing_ratio(a)
