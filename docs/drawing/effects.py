"""Pictures of what heads do to a prediction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import headscope
from headscope.core.attention import required

from .figure import Figure, coloured
from .shapes import grid, ticks

TEXT = "The keys to the cabinet"
OTHER = "The key to the cabinet"
TARGET = (" were", " was")
SHARE = "share of the difference"


def draw_contribution() -> Figure:
    """What every head of the small GPT writes for the plural, and through which tokens one of them does."""
    model = headscope.load("twin-gpt-softmax")
    method = {"name": "contribution", "sources": True}
    e = headscope.effect(model, TEXT, target=TARGET, method=method)
    name, _ = max(e.top(), key=lambda one: one[1])
    layer, head = map(int, name.split("."))
    largest, own = float(np.abs(e.effects).max()), np.asarray(e.sources)[layer, head]
    figure = Figure(760, 240, f"What every head adds to “{TARGET[0]}” over “{TARGET[1]}” after “{TEXT}”")
    figure.text(30, 14, "contribution of every head", bold=True)
    grid(figure, 30, 38, e.effects, largest, 22)
    figure.text(30, 188, "logits; layers down, heads across", size=11, colour="muted")
    figure.legend(30, 208, largest, signed=True)
    figure.text(370, 14, f"head {name}, by token", bold=True)
    zero, scale = 520, 180 / float(np.abs(own).max())
    for place, (token, value) in enumerate(zip(e.key_tokens, own, strict=True)):
        y, size = 38 + 24 * place, float(value) * scale
        figure.text(440, y + 13, token.text, size=11, anchor="end")
        figure.box(zero + min(size, 0.0), y, abs(size), 18, colour="more" if size >= 0 else "less")
        figure.text(zero + max(size, 0.0) + 6, y + 13, f"{value:+.2f}", size=10, colour="muted")
    return figure


def draw_writes() -> Figure:
    """The logits that the heads with the largest contributions raise and lower most."""
    model = headscope.load("twin-gpt-softmax")
    e = headscope.effect(model, TEXT, target=TARGET, method={"name": "contribution", "writes": 5})
    figure = Figure(760, 290, f"What three heads write after “{TEXT}”")
    for x, (name, value) in zip((30, 280, 530), e.top(3), strict=True):
        layer, head = map(int, name.split("."))
        found = required(e.writes)[layer][head]
        largest, zero = max(abs(one.logit) for one in found), x + 130
        figure.text(x, 14, f"head {name}", bold=True)
        figure.text(x + 70, 14, f"{value:+.2f} to the target", size=11, colour="muted")
        for place, one in enumerate(found):
            y, size = 30 + 22 * place + 10 * (place >= 5), one.logit * 50 / largest
            figure.text(x + 70, y + 13, one.text.strip() or "space", size=11, anchor="end")
            figure.box(zero + min(size, 0.0), y, abs(size), 17, colour="more" if size >= 0 else "less")
            figure.text(zero + max(size, 0.0) + 6, y + 13, f"{one.logit:+.2f}", size=10, colour="muted")
    figure.text(30, 280, "logits of the five tokens that each head raises and lowers most", size=11, colour="muted")
    return figure


def side_by_side(figure: Figure, places: Sequence[int], grids: Mapping[str, Any], unit: str) -> Figure:
    """Draw grids [L, H] beside each other, each below its words, with one scale."""
    largest = max(float(np.abs(values).max()) for values in grids.values())
    for x, (words, values) in zip(places, grids.items(), strict=True):
        figure.text(x, 14, words, bold=True)
        grid(figure, x, 38, values, largest, 22)
    figure.text(30, 188, f"{unit}; layers down, heads across", size=11, colour="muted")
    figure.legend(30, 208, largest, signed=True)
    return figure


def draw_ablation() -> Figure:
    """What every head writes for the plural, and how much of it is lost without the head, in two ways."""
    model = headscope.load("twin-gpt-softmax")
    methods = {
        "contribution": "contribution",
        "without it: zero": {"name": "ablation", "how": "zero"},
        "without it: mean": {"name": "ablation", "how": "mean"},
    }
    grids = {words: headscope.effect(model, TEXT, target=TARGET, method=one).effects for words, one in methods.items()}
    figure = Figure(760, 240, f"Contributions and ablation for “{TARGET[0]}” over “{TARGET[1]}” after “{TEXT}”")
    return side_by_side(figure, (30, 280, 530), grids, "logits")


def draw_patching() -> Figure:
    """What every head carries from the plural to the singular, and back."""
    model = headscope.load("twin-gpt-softmax")
    words = {"denoise": "brought into the other text", "noise": "lost with the other text's output"}
    figure = Figure(760, 240, f"Patching between “{TEXT}” and “{OTHER}”, for “{TARGET[0]}” over “{TARGET[1]}”")
    found = {
        one: headscope.effect(model, TEXT, against=OTHER, target=TARGET, method={"name": "patching", "direction": one})
        for one in words
    }
    return side_by_side(figure, (30, 330), {f"{one}: {words[one]}": e.shares for one, e in found.items()}, SHARE)


def draw_path_patching() -> Figure:
    """What every head sends to one head, and what it carries in all."""
    model = headscope.load("twin-gpt-softmax")
    path = {"name": "path-patching", "receiver": "5.7", "reads": "value"}
    words = {"to the value of head 5.7": path, "to everything after it": {"name": "patching"}}
    figure = Figure(760, 240, f"Patching from “{TEXT}” into “{OTHER}”, on one path and on all")
    found = {
        one: headscope.effect(model, TEXT, against=OTHER, target=TARGET, method=method) for one, method in words.items()
    }
    return side_by_side(figure, (30, 330), {one: e.shares for one, e in found.items()}, SHARE)


def draw_attribution_patching() -> Figure:
    """What every head carries from the plural to the singular: exactly, and estimated."""
    model = headscope.load("twin-gpt-softmax")
    words = {"patching": "exact", "attribution-patching": "estimated"}
    figure = Figure(760, 240, f"Patching from “{TEXT}” into “{OTHER}”, exact and estimated")
    found = {one: headscope.effect(model, TEXT, against=OTHER, target=TARGET, method=one) for one in words}
    return side_by_side(figure, (30, 330), {words[one]: e.shares for one, e in found.items()}, SHARE)


def draw_gradient_attention() -> Figure:
    """The sum of every head's map, and the map of the head with the largest one beside its weights."""
    model = headscope.load("twin-gpt-softmax")
    e = headscope.effect(model, TEXT, target=TARGET, method="gradient-attention")
    layer, head = map(int, max(e.top(), key=lambda one: one[1])[0].split("."))
    weights = headscope.analyze(model, TEXT, lenses=["weights"], measures=[]).maps["weights"][layer, head]
    figure = Figure(760, 250, f"Gradient × attention for “{TARGET[0]}” over “{TARGET[1]}” after “{TEXT}”")
    figure.text(30, 14, "sum of every head's map", bold=True)
    largest, tokens = float(np.abs(e.effects).max()), [token.text for token in e.tokens]
    grid(figure, 30, 38, e.effects, largest, 22)
    figure.text(30, 188, "logits; layers down, heads across", size=11, colour="muted")
    figure.legend(30, 208, largest, signed=True)
    for x, words, values in (
        (350, f"weights of head {layer}.{head}", weights),
        (570, "times gradient", e.maps[layer, head]),
    ):
        figure.text(x, 14, words, bold=True)
        figure.image(x, 38, 130, 130, coloured(values, float(np.abs(values).max())))
        ticks(figure, tokens, x, 38, 130 / len(tokens), left=x == 350)
        figure.legend(x, 222, float(np.abs(values).max()), signed=bool(values.min() < 0), width=70)
    return figure


def draw_integrated_gradients() -> Figure:
    """The map of the head with the largest sum, by the gradient at the end of the path and by its mean."""
    model = headscope.load("twin-gpt-softmax")
    words = {"gradient-attention": "gradient × attention", "integrated-gradients": "integrated gradients"}
    found = {one: headscope.effect(model, TEXT, target=TARGET, method=one) for one in words}
    figure = Figure(760, 250, f"Gradient × attention and integrated gradients for “{TARGET[0]}” over “{TARGET[1]}”")
    largest = max(float(np.abs(e.effects).max()) for e in found.values())
    for x, (name, e) in zip((30, 400), found.items(), strict=True):
        figure.text(x, 14, f"{words[name]}: sums", bold=True)
        grid(figure, x, 38, e.effects, largest, 22)
    figure.text(30, 188, "logits; layers down, heads across", size=11, colour="muted")
    figure.legend(30, 208, largest, signed=True)
    return figure


def draw_dual_path() -> Figure:
    """The sums of all heads by the gradient, and by equal shares of the factors of every product."""
    model = headscope.load("twin-gpt-softmax")
    words = {"gradient-attention": "gradient × attention: sums", "dual-path": "dual path attribution: sums"}
    found = {words[one]: headscope.effect(model, TEXT, target=TARGET, method=one).effects for one in words}
    figure = Figure(760, 240, f"Gradient × attention and dual path attribution for “{TARGET[0]}” over “{TARGET[1]}”")
    return side_by_side(figure, (30, 400), found, "logits")


def draw_alti_logit() -> Figure:
    """What all heads add for the plural, by token: below their layer, and of the input."""
    model = headscope.load("twin-gpt-softmax")
    methods = {
        "by token below the layer": {"name": "contribution", "sources": True},
        "by token of the input": "alti-logit",
    }
    found = {words: headscope.effect(model, TEXT, target=TARGET, method=one) for words, one in methods.items()}
    sums = {words: np.asarray(e.sources).sum((0, 1)) for words, e in found.items()}
    largest = max(float(np.abs(one).max()) for one in sums.values())
    figure = Figure(760, 190, f"ALTI-Logit for “{TARGET[0]}” over “{TARGET[1]}” after “{TEXT}”")
    for x, (words, e) in zip((30, 410), found.items(), strict=True):
        figure.text(x, 14, words, bold=True)
        zero = x + 190
        for place, (token, value) in enumerate(zip(e.key_tokens, sums[words], strict=True)):
            y, size = 38 + 24 * place, float(value) * 90 / largest
            figure.text(x + 80, y + 13, token.text, size=11, anchor="end")
            figure.box(zero + min(size, 0.0), y, abs(size), 18, colour="more" if size >= 0 else "less")
            figure.text(zero + max(size, 0.0) + 6, y + 13, f"{value:+.2f}", size=10, colour="muted")
    figure.text(30, 178, "logits; all heads of all layers together", size=11, colour="muted")
    return figure


def draw_score() -> Figure:
    """What every head brings to one score, through the query and through the key."""
    model = headscope.load("twin-gpt-softmax")
    method = {"name": "score", "head": "5.7", "query": -1, "key": 1}
    words = {"query": "through the query", "key": "through the key"}
    found = {side: headscope.effect(model, TEXT, method={**method, "side": side}) for side in words}
    figure = Figure(760, 240, f"Why head 5.7 looks from the last token to “keys” in “{TEXT}”")
    return side_by_side(
        figure, (30, 330), {words[side]: e.effects for side, e in found.items()}, "logits before the softmax"
    )


PICTURES: dict[str, Callable[[], Figure]] = {
    "contribution": draw_contribution,
    "contribution-writes": draw_writes,
    "ablation": draw_ablation,
    "patching": draw_patching,
    "path-patching": draw_path_patching,
    "attribution-patching": draw_attribution_patching,
    "gradient-attention": draw_gradient_attention,
    "integrated-gradients": draw_integrated_gradients,
    "dual-path": draw_dual_path,
    "alti-logit": draw_alti_logit,
    "score": draw_score,
}
