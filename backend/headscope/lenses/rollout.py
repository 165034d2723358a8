"""Attention rollout: the weights of all layers multiplied, each mixed with the residual connection (Abnar & Zuidema 2020)."""

from __future__ import annotations

from pydantic import Field

from ..core.attention import Layer, Reading
from ..core.declarations import Params
from ..core.lazy import torch
from ..errors import Unsupported
from ._joined import join
from .base import Lens


class RolloutParams(Params):
    """The share of the residual connection."""

    residual: float = Field(
        0.5,
        ge=0.0,
        lt=1.0,
        description="Share of the residual connection in each layer; the rest is attention. 0.5 in the paper.",
    )


def read(layer: Layer, params: RolloutParams) -> Reading:
    """Return (1 - residual) * mean over the heads + residual * I, [1, Q, K], 0..1. Rows are divided by their sum, so they sum to 1 with a learned sink, too.

    Without a residual connection, a row that is zero in all heads is NaN and counted as undefined.

    Raises Unsupported where a weight is negative, which no share of information can be.
    """
    if bool(layer.weights.min() < 0):
        raise Unsupported(
            "Rollout multiplies shares, but under this mechanism some weights are negative. Choose another lens or another mechanism."
        )
    dtype = torch.promote_types(layer.weights.dtype, torch.float32)
    mixed = layer.weights.mean(0, dtype=dtype).mul_(1 - params.residual)
    mixed.diagonal().add_(params.residual)
    sums = mixed.sum(-1, keepdim=True)
    return Reading(mixed.div_(sums)[None], undefined=(sums == 0).sum()[None])


ROLLOUT = Lens(
    name="rollout",
    title="Rollout",
    doc="How much of each input token is in a token after this layer, if every layer mixed tokens by the mean weights of its heads and a fixed share of residual connection.",
    not_="Not a measured flow: it ignores values, the feed-forward part and differences between heads, and half and half is an assumption. "
    "In causal models it drifts to the first token with depth.",
    citation="Abnar & Zuidema 2020, Quantifying Attention Flow in Transformers, sec. 3",
    params=RolloutParams,
    range=(0.0, 1.0),
    distribution=True,
    needs=("same-tokens",),
    of="layer",
    undefined="every head's weights are zero",
    join=join,
    read=read,
)
