"""Effects of the null space of the values: the share of a map without effect, and the leverage of each token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.attention import Layer, Reading, required
from ..core.lazy import Tensor, torch
from ..core.rows import squared_norms
from ._maps import nothing
from .base import ByRows, Measure


def share(layer: Layer, lens: str, readings: Mapping[str, Reading], params: Any) -> Tensor:
    """Return ||A - A_eff||² / ||A||² per head, [H]; NaN for weights of zeros. The projection is orthogonal, so this is 1 - ||A_eff||² / ||A||²."""
    return _combine(layer, readings, _norms(layer, lens, readings, params), params)


def _norms(layer: Layer, lens: str, readings: Mapping[str, Reading], params: Any) -> Tensor:
    """Return the squared norm of every row, and the part of it that effective attention keeps, [H, Q, 2]: both 0 for rows of zeros, whatever their share."""
    norms = layer.once(squared_norms)  # [H, Q]
    return torch.stack([norms, required(readings["effective"].kept) * norms], -1)


def _combine(layer: Layer, facts: Mapping[str, Reading], norms: Tensor, params: Any) -> Tensor:
    whole, kept = norms.sum(1).unbind(-1)
    return (1 - kept / whole).clamp(0, 1)


def share_rows(layer: Layer, lens: str, readings: Mapping[str, Reading], params: Any) -> Tensor:
    """Return the same for every query on its own, [H, Q]; NaN for rows of zeros, which have nothing to lose."""
    return (1 - required(readings["effective"].kept)).masked_fill(layer.once(squared_norms) == 0, torch.nan)


def leverage(layer: Layer, lens: str, readings: Mapping[str, Reading], params: Any) -> Tensor:
    """Return l_j = v_j (VᵀV)⁺ v_jᵀ over all keys, [H, K]: how much of the weight on token j stays on token j."""
    return required(readings["effective"].leverage)


def _leverage(layer: Layer, facts: Mapping[str, Reading], statistics: Tensor, params: Any) -> Tensor:
    return required(facts["effective"].leverage)


def _none(layer: Layer, lens: str, readings: Mapping[str, Reading], params: Any) -> Tensor:
    return layer.output[..., :0]


NULL_SHARE = Measure(
    name="null_share",
    title="Null share",
    doc="The share of the map, in squared norm, that has no effect because it is in the null space of the head's value vectors.",
    not_="Not a share of attention weight, and 0 by construction while there are no more tokens than the head is wide.",
    citation="||A - A_eff||² / ||A||², after Sun & Marasović 2021",
    range=(0.0, 1.0),
    shape="L H",
    needs=("values",),
    reads=("effective",),
    phrases={
        "": (
            "redundant",
            "wasted attention",
            "useless attention",
            "wastes attention",
            "no effect",
            "without effect on the output",
            "no influence on the output",
            "share that reaches nothing",
            "lost share",
        ),
        "-": ("no attention is lost",),
    },
    compute=share,
    by_rows=ByRows(_norms, _combine, reads_map=False),
    looks=nothing,
)

NULL_SHARE_ROWS = Measure(
    name="null_share_rows",
    title="Null share by query",
    doc="The null share of every query token on its own.",
    not_="Not a statement about the token's importance: it depends on this head's values only.",
    citation="||a_i - a_eff,i||² / ||a_i||², after Sun & Marasović 2021",
    range=(0.0, 1.0),
    shape="L H Q",
    needs=("values",),
    reads=("effective",),
    phrases={"": ("null share of every query",)},
    compute=share_rows,
    by_rows=ByRows(share_rows, reads_map=False),
    looks=nothing,
)

LEVERAGE = Measure(
    name="leverage",
    title="Leverage",
    doc="How much of the weight on a token stays on that token in effective attention; the rest is spread over tokens with similar values.",
    not_="Not linguistic by itself: the average token keeps head width / tokens in any model, and a token with a tiny value vector keeps almost nothing.",
    citation="Diagonal of the hat matrix V V⁺ of the values over all keys",
    range=(0.0, 1.0),
    shape="L H K",
    needs=("values",),
    reads=("effective",),
    phrases={"": ("weight that stays on its token",)},
    compute=leverage,
    by_rows=ByRows(_none, _leverage, reads_map=False),
    looks=nothing,
)
