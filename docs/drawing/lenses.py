"""Pictures of the lenses of heads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from . import samples
from .figure import Figure, coloured
from .shapes import panels, ticks


def draw_weights() -> Figure:
    """Two heads of a short text, every token named."""
    a = samples.analysed(samples.SHORT)
    tokens = [token.text for token in a.tokens]
    n, cell, y = len(tokens), 17, 44
    figure = Figure(760, y + n * cell + 118, "Weights of two heads of MiniLM for one sentence")
    for x, (layer, head), words in ((74, (4, 5), "rests on one token"), (460, (0, 2), "looks at the token before")):
        figure.text(x, 18, f"head {layer}.{head}", bold=True)
        figure.text(x, 34, words, size=11, colour="muted")
        figure.image(x, y, n * cell, n * cell, coloured(a.maps["weights"][layer, head], 1.0))
        for place, token in enumerate(tokens):
            figure.text(x - 6, y + (place + 0.5) * cell + 4, token, size=11, anchor="end")
            figure.text(x + (place + 0.5) * cell + 4, y + n * cell + 6, token, size=11, anchor="end", turn=-90)
    figure.text(74, y + n * cell + 84, "rows are queries, columns are keys", size=11, colour="muted")
    figure.legend(460, y + n * cell + 76, 1.0, signed=False)
    return figure


def draw_effective(a: Any) -> Figure:
    """One head: weights, effective attention, and the difference."""
    layer, head = 4, 5
    tokens = [token.text for token in a.tokens]
    weights, effective = a.maps["weights"][layer, head], a.maps["effective"][layer, head]
    share = a.measures["null_share"]["weights"][layer, head]
    n, cell, y, largest = len(tokens), 5, 44, float(weights.max())
    panels = (("weights", "what the model computed", weights), ("effective attention", "what reaches the output", effective),
              ("the difference", "what multiplies to nothing", weights - effective))  # fmt: skip
    figure = Figure(760, y + n * cell + 104, f"Head {layer}.{head} of MiniLM through two lenses")
    for place, (title, words, values) in enumerate(panels):
        x = 62 + place * (n * cell + 20)
        figure.text(x, 18, title, bold=True)
        figure.text(x, 34, words, size=11, colour="muted")
        figure.image(x, y, n * cell, n * cell, coloured(values, largest))
        ticks(figure, tokens, x, y, cell, left=place == 0)
    figure.text(
        62,
        y + n * cell + 82,
        f"head {layer}.{head}, {n} tokens, 32 dimensions; null share {share:.2f}",
        size=11,
        colour="muted",
    )
    figure.legend(502, y + n * cell + 70, largest, signed=True)
    return figure


def draw_simplex(a: Any) -> Figure:
    """Both versions of effective attention with the sums of their rows."""
    layer, head = 5, 4
    tokens = [token.text for token in a.tokens]
    n, cell, y, bar = len(tokens), 5.4, 44, 62
    maps = [a.maps[lens][layer, head] for lens in ("effective", "effective-simplex")]
    largest = float(max(np.abs(values).max() for values in maps))
    figure = Figure(
        760, y + n * cell + 104, f"Head {layer}.{head} of MiniLM with and without the condition on row sums"
    )
    for place, (title, values) in enumerate(zip(("effective attention", "rows sum to 1"), maps, strict=True)):
        x = 62 + place * (n * cell + bar + 50)
        figure.text(x, 18, title, bold=True)
        figure.text(x + n * cell + 12, 18, "row sums", size=11, colour="muted")
        figure.image(x, y, n * cell, n * cell, coloured(values, largest))
        ticks(figure, tokens, x, y, cell, left=place == 0)
        left, scale = x + n * cell + 12, bar / 1.2
        for row, total in enumerate(values.sum(1)):
            figure.box(
                left + min(0, total * scale),
                y + row * cell + 0.7,
                abs(total) * scale,
                cell - 1.4,
                colour="more" if total >= 0 else "less",
            )
        for value in (0, 1):
            figure.line([(left + value * scale, y), (left + value * scale, y + n * cell)], dashed=value == 1)
            figure.text(left + value * scale, y + n * cell + 14, str(value), size=10, anchor="middle", colour="muted")
    figure.text(62, y + n * cell + 82, f"head {layer}.{head}, {n} tokens, 32 dimensions", size=11, colour="muted")
    figure.legend(460, y + n * cell + 70, largest, signed=True)
    return figure


def draw_null(a: Any) -> Figure:
    """One head split into the parts that do and do not reach the output."""
    layer, head = 3, 7
    weights, effective = a.maps["weights"][layer, head], a.maps["effective"][layer, head]
    maps = (("weights", "what the model computed", weights), ("effective attention", "what reaches the output", effective),
            ("null part", "what multiplies to nothing", weights - effective))  # fmt: skip
    foot = f"head {layer}.{head}, {len(a.tokens)} tokens, 32 dimensions"
    return panels(f"Head {layer}.{head} of MiniLM and its null part", a, maps, foot)


def draw_published() -> Figure:
    """A short sentence by the definition and as published."""
    layer, head, published = 0, 2, "effective-published"
    a = samples.analysed(samples.SHORT, ("weights", "effective", published))
    maps = (("weights", "what the model computed", a.maps["weights"][layer, head]),
            ("effective attention", "as defined: the same", a.maps["effective"][layer, head]),
            ("as published", "padded to 128 tokens", a.maps[published][layer, head]))  # fmt: skip
    foot = f"head {layer}.{head}, {len(a.tokens)} tokens, 32 dimensions"
    return panels(f"Head {layer}.{head} of MiniLM by the definition and as published", a, maps, foot)


def draw_max_entropy() -> Figure:
    """One head of a longer text and the most even distributions with its outputs."""
    layer, head = 1, 5
    a = samples.analysed(samples.LONG, ("weights", "max-entropy"), ("entropy",), max_tokens=96)
    nats = [a.measures["entropy"][lens][layer, head].mean() for lens in ("weights", "max-entropy")]
    maps = [
        (title, f"mean entropy {value:.2f} nats", a.maps[lens][layer, head])
        for title, lens, value in zip(("weights", "maximum entropy"), ("weights", "max-entropy"), nats, strict=True)
    ]
    foot = f"head {layer}.{head}, {len(a.tokens)} tokens, 32 dimensions"
    return panels(f"Head {layer}.{head} of MiniLM and the most even map with its output", a, maps, foot)


def draw_norm(a: Any) -> Figure:
    """One head's weights and the norms of its contributions, each on its own scale."""
    layer, head = 4, 5
    tokens = [token.text for token in a.tokens]
    n, cell, y = len(tokens), 7.2, 44
    figure = Figure(760, y + n * cell + 110, f"Head {layer}.{head} of MiniLM: weights and norms of contributions")
    for place, (lens, title, words) in enumerate(
        (
            ("weights", "weights", "how much of each token"),
            ("norm", "norm of contributions", "how long what it adds is"),
        )
    ):
        x, values = 62 + place * (n * cell + 40), a.maps[lens][layer, head]
        figure.text(x, 18, title, bold=True)
        figure.text(x, 34, words, size=11, colour="muted")
        figure.image(x, y, n * cell, n * cell, coloured(values, float(values.max())))
        ticks(figure, tokens, x, y, cell, left=place == 0)
        figure.legend(x + 70, y + n * cell + 74, float(values.max()), signed=False)
    return figure


PICTURES: dict[str, Callable[[], Figure]] = {
    "weights": draw_weights,
    "effective": lambda: draw_effective(samples.middle()),
    "effective-simplex": lambda: draw_simplex(samples.middle()),
    "null": lambda: draw_null(samples.middle()),
    "effective-published": draw_published,
    "max-entropy": draw_max_entropy,
    "norm": lambda: draw_norm(samples.middle()),
}
