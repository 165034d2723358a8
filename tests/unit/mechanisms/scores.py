"""Random scores, settings and tokens to try mechanisms on."""

from __future__ import annotations

import numpy as np
import torch

from headscope.core.tokens import Axes, Token
from headscope.mechanisms.base import PassContext, Scores


def tokens(n: int, special: tuple[int, ...] = (0,)) -> tuple[Token, ...]:
    return tuple(
        Token(f"t{i}", i, i, i + 1, None if i in special else i, 0, "special" if i in special else "word")
        for i in range(n)
    )


def setting(heads=(4, 4, 4), width=8, n=5, special=(0,), layers=None) -> PassContext:
    axes = Axes(tokens(n, special), tokens(n, special))
    return PassContext(dict(zip(layers or range(len(heads)), heads, strict=True)), width, axes)


def blocked(n: int, rule: str) -> torch.Tensor | None:
    """[1, n, n], True where a query may not attend: nowhere, in the future, or outside a window of three tokens."""
    if rule == "all":
        return None
    place = torch.arange(n)
    future = place[None, :] > place[:, None]
    if rule == "prefix":
        return future[None]
    return (future | (place[:, None] - place[None, :] > 2))[None]


def scores(seed: int, n: int, heads=(0, 1, 2, 3), rule="all", layer=0, width=4, scale=1.0, **more) -> Scores:
    random = np.random.default_rng([seed, layer, *heads])
    made = [torch.from_numpy(scale * random.standard_normal((len(heads), n, width))).float() for _ in range(2)]
    given = {"scaling": width**-0.5, "softcap": None, "bias": None, "blocked": blocked(n, rule), "sink": None, **more}
    return Scores(layer=layer, heads=tuple(heads), query=made[0], key=made[1], **given)


def logits(of: Scores) -> np.ndarray:
    """Scaled, capped and biased scores in float64, entry by entry; not masked."""
    Q, K = of.query.double().numpy(), of.key.double().numpy()
    result = np.zeros((len(of.heads), Q.shape[1], K.shape[1]))
    for h, i, j in np.ndindex(*result.shape):
        value = sum(a * b for a, b in zip(Q[h, i], K[h, j], strict=True)) * of.scaling
        if of.softcap is not None:
            value = of.softcap * np.tanh(value / of.softcap)
        if of.bias is not None:
            value += of.bias[h % len(of.bias), i, j].item()
        result[h, i, j] = value
    return result


def softmax(of: Scores, values: np.ndarray) -> np.ndarray:
    """Weights in float64, row by row over the allowed keys, a sink taking its share."""
    result = np.zeros(values.shape)
    for h, i in np.ndindex(*values.shape[:2]):
        keys = [
            j for j in range(values.shape[2]) if of.blocked is None or not of.blocked[h % len(of.blocked), i, j].item()
        ]
        sink = [] if of.sink is None else [of.sink[h, 0, 0].item()]
        high = max([*(values[h, i, j] for j in keys), *sink])
        powers = {j: np.exp(values[h, i, j] - high) for j in keys}
        total = sum(powers.values()) + sum(np.exp(s - high) for s in sink)
        for j in keys:
            result[h, i, j] = powers[j] / total
    return result
