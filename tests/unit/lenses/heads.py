"""Random heads under every mask, for the lenses that read heads."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from hypothesis import settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from headscope.core.attention import Keys, Layer
from headscope.core.tokens import Axes, Token
from tests.support.extent import extent

Array = NDArray[Any]
RULES = ("all", "prefix", "window")
EPSILON = float(np.finfo(np.float32).eps)
FEW = settings(max_examples=extent(25, 5), deadline=None, derandomize=True)
SIZES = st.sampled_from([1, 2, 5, 7, 8, 9, 10, 13, 24])
VALUES = st.sampled_from(["random", "zero", "equal", "repeated", "offset", "flat"])


def allowed(rule: str, n: int) -> Array:
    """The keys [Q, K] that each query may see."""
    queries, keys = np.indices((n, n))
    return {"all": keys >= 0, "prefix": keys <= queries, "window": (keys <= queries) & (keys > queries - 12)}[rule]


def values(kind: str, groups: int, n: int, width: int, seed: int) -> torch.Tensor:
    """Values [G, K, D]: random ones, and ones that lenses could trip over."""
    found = torch.randn(groups, n, width, generator=torch.Generator().manual_seed(seed))
    match kind:
        case "zero":
            found[0] = 0
        case "equal":
            found[:] = found[:, :1]
        case "repeated":
            found[:, n // 2 :] = found[:, : n - n // 2].clone()
        case "offset":
            found += 30
        case "flat":
            found[..., width // 2 :] = 0
    return found


def head_layer(
    n: int, rule: str = "all", *, kind: str = "random", seed: int = 0, sharpness: float = 2.0, special: tuple[int, ...] = (),
    heads: int = 4, groups: int = 2, width: int = 8, model_width: int = 20, queries: int | None = None,
) -> Layer:  # fmt: skip
    """A layer of random heads; with fewer `queries` than keys it is cross-attention."""
    generator = torch.Generator().manual_seed(seed)
    mask = torch.from_numpy(allowed(rule, n))[: queries or n]
    scores = sharpness * torch.randn(heads, queries or n, n, generator=generator)
    weights = scores.masked_fill(~mask, -torch.inf).softmax(-1)
    V = values(kind, groups, n, width, seed + 1)
    projection = torch.randn(heads, width, model_width, generator=generator)
    tokens = tuple(
        Token(str(i), i, i, i + 1, None if i in special else i, 0, "special" if i in special else "word")
        for i in range(n)
    )
    return Layer(
        index=0,
        heads=tuple(range(heads)),
        weights=weights,
        values=V,
        output=weights @ V.repeat_interleave(heads // groups, 0),
        keys=Keys.of(mask) if rule == "window" else Keys(rule),  # type: ignore[arg-type]
        epsilon=EPSILON,
        axes=Axes(tokens[: queries or n], tokens),
        query=torch.zeros(heads, queries or n, 1),
        key=torch.zeros(groups, n, 1),
        projection=projection,
        projection_factors=torch.linalg.qr(projection.double().mT, mode="r").R.mT,
    )


def by_head(layer: Layer) -> Array:
    """Values of every head, [H, K, D] in float64."""
    return layer.values.repeat_interleave(layer.weights.shape[0] // layer.values.shape[0], 0).double().numpy()


def mask_of(layer: Layer) -> Array:
    """The keys [Q, K] that each query of the layer may see."""
    return layer.keys.allowed(*layer.weights.shape[1:]).numpy()
