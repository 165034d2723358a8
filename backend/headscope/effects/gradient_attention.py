"""What a target would gain to first order from more of each attention weight: the weight times the gradient of the target there."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ..core.lazy import Tensor
from .base import EffectMethod, EffectParams


class GradientAttentionParams(EffectParams):
    """What becomes of negative entries."""

    sign: Literal["keep", "clamp", "drop"] = Field(
        default="keep",
        description='"keep" leaves entries as they are, "clamp" replaces negative ones by 0, and "drop" takes their magnitude: '
        "the weight times the norm of its gradient.",
    )


def attributions(weights: Tensor, values: Tensor, gradient: Tensor) -> Tensor:
    """Return each weight times the gradient of a target there, [H, Q, K].

    weights [H, Q, K], values [G, K, D], gradient [H, Q, D] of the target with respect to the outputs weights @ values, so that it is gradient @ valuesᵀ with
    respect to the weights. Every weight counts as free: rows need not sum to 1, and nothing passes through the softmax.
    """
    (heads, queries, keys), groups = weights.shape, len(values)
    slopes = (
        gradient.reshape(groups, -1, gradient.shape[-1]) @ values.mT
    )  # heads of a group share values: [G, H/G Q, K]
    return slopes.reshape(heads, queries, keys).mul_(weights)


def with_sign(maps: Tensor, sign: Literal["keep", "clamp", "drop"]) -> Tensor:
    """Return maps with their negative entries as they are, as 0, or as positive ones; overwrites them."""
    if sign == "keep":
        return maps
    return maps.clamp_min_(0) if sign == "clamp" else maps.abs_()


GRADIENT_ATTENTION = EffectMethod(
    name="gradient-attention",
    title="Gradient × attention",
    doc="A map per head: each attention weight times the gradient of the target there, through everything that follows. A head's effect is the sum of its map.",
    not_="Not what happens without the weight: the gradient holds for small changes only, and says nothing of where the weights come from.",
    citation='Barkan et al. 2021, Grad-SAM; Chefer, Gur & Wolf 2021, Generic Attention-Model Explainability, sec. 3 ("clamp")',
    params=GradientAttentionParams,
    unit="logits",
    needs=("values", "equal-heads"),
    activations=22,
    maps=True,
)
