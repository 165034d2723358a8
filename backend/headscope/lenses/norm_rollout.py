"""Rollout of the norms of what every token adds to another one: each layer's norms as shares, multiplied over the layers."""

from __future__ import annotations

from ..core.attention import Layer, Reading
from ..core.declarations import NoParams
from . import norm_residual
from ._contributions import shares
from ._joined import join
from .base import Lens


def read(layer: Layer, params: NoParams) -> Reading:
    """Return ||g(y_ij)|| of `norm-residual` as shares of the row, [1, Q, K], 0..1. A row of zeros becomes NaN and is counted as undefined.

    Raises Unsupported where the heads' outputs do not add up to what the residual stream receives.
    """
    return shares(norm_residual.read(layer, params).map[0], layer)


NORM_ROLLOUT = Lens(
    name="norm-rollout",
    title="Value-weighted rollout",
    doc="How much of each input token is in a token after this layer, if every layer mixed tokens in proportion to the lengths of the vectors "
    "that they add to each other, residual connection included.",
    not_="Not a measured flow: lengths say nothing of directions, so vectors that cancel count as much as vectors that add up. "
    "The feed-forward part is left out.",
    citation="Kobayashi et al. 2021, Incorporating Residual and Normalization Layers into Analysis of Masked Language Models, sec. 3; "
    "Modarressi et al. 2022, GlobEnc",
    range=(0.0, 1.0),
    distribution=True,
    needs=("values", "projection", "residual", "same-tokens"),
    of="layer",
    undefined="no token contributes",
    join=join,
    read=read,
)
