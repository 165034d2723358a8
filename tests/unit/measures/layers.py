"""Layers of random tensors for measures to read."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from headscope.core.attention import Keys, Layer, Reading, Stream
from headscope.core.tokens import Axes, Token

EPSILON = torch.finfo(torch.float32).eps


def tokens(n: int, special: tuple[int, ...] = ()) -> tuple[Token, ...]:
    """n tokens named by their number; some of them special."""
    return tuple(
        Token(str(i), i, i, i, None if i in special else i, 0, "special" if i in special else "word") for i in range(n)
    )


def random_rows(seed: int, *shape: int, rule: str = "all", sharpness: float = 2.0) -> NDArray[Any]:
    """Rows [..., Q, K] that sum to 1 over the keys that a query may see: all, the prefix, or a window of 3."""
    logits = np.random.default_rng(seed).normal(0, sharpness, shape)
    queries, keys = np.indices(shape[-2:])
    allowed = {"all": keys >= 0, "prefix": keys <= queries, "window": (keys <= queries) & (keys > queries - 3)}[rule]
    rows = np.where(allowed, np.exp(logits), 0)
    return (rows / rows.sum(-1, keepdims=True)).astype(np.float32)


def layer_of(weights: Any, *, special: tuple[int, ...] = (), **fields: Any) -> Layer:
    """A layer with these weights [H, Q, K]; fields are arrays, but for `stream` and `after`."""
    weights = torch.as_tensor(weights)
    heads, queries, keys = weights.shape
    given: dict[str, Any] = {
        "values": torch.zeros(0),
        "output": torch.zeros(0),
        "query": torch.zeros(0),
        "key": torch.zeros(0),
    }
    after = fields.pop("after", None)
    if after is not None:
        given["stream"] = Stream(after=torch.as_tensor(after))
    given |= {name: torch.as_tensor(value) for name, value in fields.items()}
    axes = Axes(tokens(queries, special), tokens(keys, special))
    return Layer(
        index=0, heads=tuple(range(heads)), weights=weights, keys=Keys("all"), epsilon=EPSILON, axes=axes, **given
    )


def readings(layer: Layer, **maps: Any) -> dict[str, Reading]:
    """The weights, and these maps by lens."""
    return {"weights": Reading(layer.weights)} | {name: Reading(torch.as_tensor(m), True) for name, m in maps.items()}


def states_layer(after: NDArray[Any], special: tuple[int, ...] = ()) -> Layer:
    """A layer that leaves these hidden states [Q, d]."""
    n = len(after)
    return layer_of(np.full((1, n, n), 1 / max(n, 1), np.float32), after=after, special=special)
