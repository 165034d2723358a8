"""Pictures of what heads do to a prediction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import headscope

from .figure import Figure
from .shapes import grid

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


def draw_attribution_patching() -> Figure:
    """What every head carries from the plural to the singular: exactly, and estimated."""
    model = headscope.load("twin-gpt-softmax")
    words = {"patching": "exact", "attribution-patching": "estimated"}
    figure = Figure(760, 240, f"Patching from “{TEXT}” into “{OTHER}”, exact and estimated")
    found = {one: headscope.effect(model, TEXT, against=OTHER, target=TARGET, method=one) for one in words}
    return side_by_side(figure, (30, 330), {words[one]: e.shares for one, e in found.items()}, SHARE)


PICTURES: dict[str, Callable[[], Figure]] = {
    "contribution": draw_contribution,
    "ablation": draw_ablation,
    "patching": draw_patching,
    "attribution-patching": draw_attribution_patching,
}
