"""Pictures of the lenses of whole layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from . import samples
from .figure import Figure
from .shapes import Panel, panels


def mean_weights(a: Any, layer: int) -> Panel:
    """Mean over the heads of a layer."""
    return ("weights", "mean over the heads", a.maps["weights"][layer].mean(0))


def draw_norm_residual(a: Any, layer: int = 3) -> Figure:
    """One layer's weights, and the norms of the contributions."""
    norms = a.maps["norm-residual"][layer, 0]
    others = norms * (1 - np.eye(len(norms)))
    maps = (
        mean_weights(a, layer),
        ("norms", "with the residual connection", norms),
        ("norms", "without the diagonal", others),
    )
    foot = f"layer {layer} of MiniLM, {len(norms)} tokens"
    return panels(f"Layer {layer} of MiniLM: weights, and norms of what arrives", a, maps, foot, one_scale=False)


def draw_rollout(a: Any) -> Figure:
    """The rollout after the first, a middle and the last layer."""
    rolled = a.maps["rollout"][:, 0]
    maps = [("rollout", f"after layer {layer}", rolled[layer]) for layer in (0, 2, len(rolled) - 1)]
    return panels(
        "Rollout of MiniLM after three of its layers", a, maps, f"{len(a.tokens)} tokens, residual 0.5", one_scale=False
    )


def draw_norm_rollout(a: Any) -> Figure:
    """Value-weighted rollout after the first and the last layer, beside the rollout after the last."""
    shares, last = a.maps["norm-rollout"][:, 0], len(a.maps["norm-rollout"]) - 1
    maps = (
        ("value-weighted", "after layer 0", shares[0]),
        ("value-weighted", f"after layer {last}", shares[last]),
        ("rollout", f"after layer {last}", a.maps["rollout"][last, 0]),
    )
    foot = f"{len(a.tokens)} tokens"
    return panels("Value-weighted rollout of MiniLM after its first and last layer", a, maps, foot, one_scale=False)


def draw_alti(a: Any) -> Figure:
    """ALTI after the first and the last layer, beside the rollout after the last."""
    shares, last = a.maps["alti"][:, 0], len(a.maps["alti"]) - 1
    maps = (
        ("ALTI", "after layer 0", shares[0]),
        ("ALTI", f"after layer {last}", shares[last]),
        ("rollout", f"after layer {last}", a.maps["rollout"][last, 0]),
    )
    return panels("ALTI of MiniLM after its first and last layer", a, maps, f"{len(a.tokens)} tokens", one_scale=False)


def draw_value_zeroing(a: Any, layer: int = 3) -> Figure:
    """One layer's weights and value zeroing."""
    shares = a.maps["value-zeroing"][layer, 0]
    maps = (
        mean_weights(a, layer),
        ("value zeroing", "shares of each row", shares),
    )
    foot = f"layer {layer} of MiniLM, {len(shares)} tokens"
    return panels(f"Layer {layer} of MiniLM: weights and value zeroing", a, maps, foot, one_scale=False)


PICTURES: dict[str, Callable[[], Figure]] = {
    "norm-residual": lambda: draw_norm_residual(samples.layers()),
    "rollout": lambda: draw_rollout(samples.layers()),
    "norm-rollout": lambda: draw_norm_rollout(samples.layers()),
    "alti": lambda: draw_alti(samples.layers()),
    "value-zeroing": lambda: draw_value_zeroing(samples.layers()),
}
