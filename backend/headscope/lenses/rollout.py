"""Attention rollout: weights multiplied through the layers, with the residual stream as part of each (Abnar & Zuidema 2020)."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from ..core.attention import Layer, Reading
from ..core.lazy import torch
from ..errors import Unsupported
from ._joined import join
from .base import Lens


class RolloutParams(BaseModel):
    """How much of a layer's output is taken to come through the residual connection."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
    residual: float = Field(
        0.5,
        ge=0.0,
        lt=1.0,
        description="Share of the residual connection in each layer; the attention has the rest. 0.5 in the paper.",
    )


def read(layer: Layer, params: RolloutParams) -> Reading:
    """(1 - residual) * mean over the heads + residual * I, [1, Q, K], 0..1: rows divided by their sum, so that they sum to 1 beside a learned sink too.

    Raises Unsupported where a weight is negative: a share of information can't be.
    """
    if bool(layer.weights.min() < 0):
        raise Unsupported(
            "Rollout multiplies shares, and under this mechanism some weights are negative. Ask for another lens, or for a mechanism without them."
        )
    dtype = torch.promote_types(layer.weights.dtype, torch.float32)
    mixed = layer.weights.mean(0, dtype=dtype).mul_(1 - params.residual)
    mixed.diagonal().add_(params.residual)
    return Reading(mixed.div_(mixed.sum(-1, keepdim=True))[None])


ROLLOUT = Lens(
    name="rollout",
    title="Rollout",
    doc="How much of each input token is in a token after this layer, if every layer mixed tokens by the mean of its heads' weights and by a fixed share of residual connection.",
    not_="Not a measured flow: values, the feed-forward part and what heads do differently are left out, and half and half is an assumption. "
    "In causal models it drifts to the first token with depth.",
    citation="Abnar & Zuidema 2020, Quantifying Attention Flow in Transformers, sec. 3",
    params=RolloutParams,
    range=(0.0, 1.0),
    distribution=True,
    needs=("same-tokens",),
    of="layer",
    join=join,
    read=read,
)
