"""Pictures of the measures of heads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import headscope

from . import samples
from .figure import Figure, coloured
from .samples import columns
from .shapes import axes, grid

SHADES = {"vertical": 0.25, "diagonal": 1.0, "vertical+diagonal": 0.6, "block": -0.5, "heterogeneous": 0.0}


def draw_patterns(a: Any) -> Figure:
    """The class of every head, and one map of each that occurs."""
    from headscope.measures.patterns import CLASSES

    kinds, margins = columns(a, "patterns", "class").astype(int), columns(a, "patterns", "margin")
    figure = Figure(760, 268, "Classes of the heads of MiniLM, and a clear example of each that occurs")
    shades = np.array([[SHADES[CLASSES[kind]] for kind in row] for row in kinds])
    grid(figure, 30, 38, shades, 1.0)
    figure.text(30, 14, "class of every head", bold=True)
    for place, (name, shade) in enumerate(SHADES.items()):
        x, y = 30 + 160 * (place % 2), 206 + 18 * (place // 2)
        figure.image(x, y, 12, 12, coloured(np.array([[shade]]), 1.0))
        number = int((kinds == CLASSES.index(name)).sum())
        figure.text(x + 18, y + 10, f"{name}: {number}", size=11, colour="muted")
    shown = [name for name in SHADES if (kinds == CLASSES.index(name)).any()][:3]
    for place, name in enumerate(shown):
        clear = np.where(kinds == CLASSES.index(name), margins, -1)
        layer, head = np.unravel_index(int(clear.argmax()), clear.shape)
        map_ = a.maps["weights"][layer, head]
        x, size = 364 + 134 * place, 122
        figure.image(x, 38, size, size, coloured(map_, float(map_.max())))
        figure.text(x, 14, name, bold=True)
        figure.text(x, 30, f"head {layer}.{head}", size=11, colour="muted")
    figure.text(364, 182, f"the clearest of each class, {len(a.tokens)} tokens", size=11, colour="muted")
    return figure


def draw_special_tokens(a: Any) -> Figure:
    """The attention of every head to [CLS] and to [SEP]."""
    figure = Figure(760, 262, "Attention of every head of MiniLM to [CLS] and to [SEP]")
    for place, (column, title) in enumerate((("first", "to [CLS]"), ("separator", "to [SEP]"))):
        x = 30 + place * 372
        figure.text(x, 14, title, bold=True)
        grid(figure, x, 38, columns(a, "special_tokens", column), 1.0)
    figure.text(30, 216, "layers down, heads across; mean over the queries that are words", size=11, colour="muted")
    figure.legend(30, 232, 1.0, signed=False)
    return figure


def draw_token_types(a: Any) -> Figure:
    """The first token's attention to parts of speech in every head of the last layer, as in the paper's figure 1."""
    names = ("special", "NOUN", "PROPN", "PRON", "VERB", "ADP", "PUNCT")
    values = np.stack([columns(a, "token_types", name)[-1] for name in names])
    figure = Figure(760, 284, "Attention of [CLS] by token type in the last layer of MiniLM")
    cell, x, y = 28.0, 90.0, 40.0
    figure.image(x, y, values.shape[1] * cell, len(names) * cell, coloured(values, float(values.max())))
    for place, name in enumerate(names):
        figure.text(x - 8, y + (place + 0.5) * cell + 4, name, size=11, anchor="end")
    for head in range(values.shape[1]):
        figure.text(x + (head + 0.5) * cell, y - 8, f"5.{head}", size=10, anchor="middle", colour="muted")
    figure.text(x, 14, "largest weight that [CLS] puts on a token of each type", bold=True)
    figure.legend(x, y + len(names) * cell + 18, float(values.max()), signed=False)
    return figure


def draw_connections(a: Any) -> Figure:
    """Edges of each class, stacked, layer by layer."""
    names = {"special": "muted", "other": "less", "cross": "more", "one type": "more-end"}
    x, y, width, height = 66.0, 26.0, 650.0, 210.0
    counts = {name: columns(a, "connections", name).sum(-1) for name in ("special", "other", "cross")}
    counts["one type"] = sum(columns(a, "connections", name).sum(-1) for name in ("PER", "LOC", "ORG", "MISC"))
    most = float(sum(counts.values()).max())
    top = float(-(-most // 200) * 200)
    figure = Figure(760, 300, "Strong connections of MiniLM by class, layer by layer")
    axes(figure, (x, y, width, height), tuple(np.arange(0, top + 1, 200)), top, "connections of all heads", digits=0)
    layers = len(counts["special"])
    for layer in range(layers):
        place, base = x + (layer + 0.25) * width / layers, y + height
        for name, colour in names.items():
            tall = height * float(counts[name][layer]) / top
            base -= tall
            figure.box(place, base, width / layers / 2, tall, colour=colour)
        figure.text(place + width / layers / 4, y + height + 18, f"layer {layer}", size=11, anchor="middle")
    for place, (name, colour) in enumerate(names.items()):
        figure.box(x + 92 * place, y + height + 38, 12, 12, colour=colour)
        figure.text(x + 92 * place + 17, y + height + 48, name, size=11, colour="muted")
    return figure


def draw_sink(a: Any) -> Figure:
    """The largest mean weight on a special token, by layer, and the threshold."""
    values, places = columns(a, "sink", "value"), columns(a, "sink", "position")
    x, y, width, height = 66.0, 26.0, 650.0, 210.0
    figure = Figure(760, 300, "Attention sinks of MiniLM, one dot per head")
    axes(figure, (x, y, width, height), (0, 0.25, 0.5, 0.75, 1), 1.0, "mean weight on the sink", digits=2)
    figure.line([(x, y + height * 0.7), (x + width, y + height * 0.7)], colour="ink", dashed=True)
    figure.text(x + 4, y + height * 0.7 - 5, "threshold 0.3", size=10, colour="muted")
    layers, heads = values.shape
    for layer in range(layers):
        for head in range(heads):
            at = x + (layer + (head + 1) / (heads + 1)) * width / layers
            colour = "more" if places[layer, head] == 0 else "less"
            figure.dot(at, y + height * (1 - float(values[layer, head])), colour=colour)
        figure.text(x + (layer + 0.5) * width / layers, y + height + 18, f"layer {layer}", size=11, anchor="middle")
    for place, (words, colour) in enumerate((("on [CLS]", "more"), ("on [SEP]", "less"))):
        figure.dot(x + 3 + 90 * place, y + height + 44, colour=colour)
        figure.text(x + 12 + 90 * place, y + height + 48, words, size=11, colour="muted")
    return figure


def draw_head_roles(a: Any) -> Figure:
    """Share of every head's attention by offset."""
    figure = Figure(
        760, 252, "Share of the attention of every head of MiniLM on the token before, itself, and the next one"
    )
    for place, name in enumerate(("previous", "self", "next")):
        x = 30 + place * 246
        figure.text(x, 14, name, bold=True)
        grid(figure, x, 38, columns(a, "head_roles", name), 1.0, 18)
    figure.text(30, 172, "layers down, heads across; head 0.2 looks at the token before", size=11, colour="muted")
    figure.legend(30, 192, 1.0, signed=False)
    return figure


def draw_qk_distance(a: Any) -> Figure:
    """The mean distance of every head, by layer."""
    values = columns(a, "qk_distance", "mean")
    x, y, width, height, top = 66.0, 26.0, 650.0, 210.0, 20.0
    figure = Figure(760, 300, "Mean distance between query and key of every head of MiniLM")
    axes(figure, (x, y, width, height), (0, 5, 10, 15, 20), top, "mean distance (tokens)", digits=0)
    layers, heads = values.shape
    for layer in range(layers):
        for head in range(heads):
            at = x + (layer + (head + 1) / (heads + 1)) * width / layers
            figure.dot(at, y + height * (1 - float(values[layer, head]) / top))
        figure.text(x + (layer + 0.5) * width / layers, y + height + 18, f"layer {layer}", size=11, anchor="middle")
    figure.text(x, y + height + 48, f"one dot per head; {len(a.tokens)} tokens", size=11, colour="muted")
    return figure


def draw_max_activation(a: Any) -> Figure:
    """The largest weight of every head."""
    figure = Figure(760, 262, "Largest weight of every head of MiniLM outside the first row and column")
    figure.text(30, 14, "largest weight", bold=True)
    grid(figure, 30, 38, a.measures["max_activation"]["weights"], 1.0)
    figure.text(
        30, 216, "layers down, heads across; without the first query and the first key", size=11, colour="muted"
    )
    figure.legend(30, 232, 1.0, signed=False)
    return figure


def draw_token_norms(a: Any) -> Figure:
    """Attention and norms by class of token, a line per class over the layers."""
    classes = {"first": "more-end", "separator": "more", "punct": "less", "other": "muted"}
    figure = Figure(760, 300, "Attention and norms by class of token in the layers of MiniLM")
    for panel, (part, title, top) in enumerate((("attention", "attention", 1.0), ("norm", "norm", 3.0))):
        x, y, width, height = 66.0 + 366 * panel, 36.0, 300.0, 200.0
        axes(figure, (x, y, width, height), tuple(np.linspace(0, top, 5)), top, title, digits=2)
        for name, colour in classes.items():
            values = columns(a, "token_norms", f"{part}_{name}", "norm").mean(-1)
            points = [
                (x + width * (layer + 0.5) / len(values), y + height * (1 - float(value) / top))
                for layer, value in enumerate(values)
            ]
            figure.line(points, colour=colour, width=2)
        for layer in range(len(values)):
            figure.text(
                x + width * (layer + 0.5) / len(values),
                y + height + 17,
                str(layer),
                size=10,
                anchor="middle",
                colour="muted",
            )
    words = {"first": "[CLS]", "separator": "[SEP]", "punct": "punctuation", "other": "other tokens"}
    for place, (name, colour) in enumerate(classes.items()):
        figure.line([(66 + 120 * place, 282), (84 + 120 * place, 282)], colour=colour, width=2)
        figure.text(90 + 120 * place, 286, words[name], size=11, colour="muted")
    figure.text(560, 286, "by layer, mean over heads", size=11, colour="muted")
    return figure


def draw_head_scores() -> Figure:
    """The scores of a small GPT in three batteries, with the best head's control."""
    found = headscope.head_scores(headscope.load("twin-gpt-softmax"), prompts=5)
    figure = Figure(760, 262, "Scores of all heads of a small GPT in three batteries")
    for x, name in zip((30, 280, 530), ("previous-token", "induction", "s-inhibition"), strict=True):
        head, score, control = found.top(name, 1)[0]
        figure.text(x, 14, name, bold=True)
        grid(figure, x, 38, found.scores[name], 1.0, 22)
        figure.text(x, 190, f"best: head {head}, {score:.2f}", size=11, colour="muted")
        figure.text(x, 206, f"its control: {control:.2f}", size=11, colour="muted")
    figure.text(30, 238, "share of attention on right keys; layers down, heads across", size=11, colour="muted")
    figure.legend(490, 230, 1.0, signed=False)
    return figure


PICTURES: dict[str, Callable[[], Figure]] = {
    "head-scores": draw_head_scores,
    "patterns": lambda: draw_patterns(samples.middle()),
    "special_tokens": lambda: draw_special_tokens(samples.middle()),
    "token_types": lambda: draw_token_types(samples.tagged()),
    "connections": lambda: draw_connections(samples.tagged()),
    "sink": lambda: draw_sink(samples.middle()),
    "head_roles": lambda: draw_head_roles(samples.middle()),
    "qk_distance": lambda: draw_qk_distance(samples.middle()),
    "max_activation": lambda: draw_max_activation(samples.middle()),
    "token_norms": lambda: draw_token_norms(samples.middle()),
}
