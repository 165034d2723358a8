"""An estimate of what happens to a logit when the output of a head is replaced, for all heads from one gradient."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from ..core.lazy import Tensor
from .base import EffectMethod, EffectParams, NeededTexts


class AttributionPatchingParams(EffectParams):
    """What is estimated."""

    texts: ClassVar[NeededTexts] = {"against": ("of", ("denoise", "noise"))}

    of: Literal["denoise", "noise", "mean", "zero"] = Field(
        default="denoise",
        description='The effect that is estimated: of patching in the direction "denoise" or "noise", which need another text, or of ablation by "mean" or "zero".',
    )


def own_replacement(written: Tensor, mean: bool) -> Tensor:
    """Return what replaces `written` [Q, H, D] in ablation, [1, H, D]: its mean over the tokens, or 0."""
    return written.mean(0, keepdim=True) * float(mean)


def estimated_gains(written: Tensor, gradient: Tensor, other: Tensor) -> Tensor:
    """Return what a target gains to first order when the output of each head is replaced, [H] in float64.

    written [Q, H, D] is what the output projection is given, `gradient` [Q, H, D] that of the target there, and `other` [Q or 1, H, D] the replacement.
    """
    return ((other.double() - written.double()) * gradient.double()).sum((0, 2))


ATTRIBUTION_PATCHING = EffectMethod(
    name="attribution-patching",
    title="Attribution patching",
    doc="An estimate of patching or ablation for all heads at once: the change of a head's output, times the gradient of the target there.",
    not_="Not the effect itself: the gradient holds for small changes only, and is nearly zero where attention or a function is saturated.",
    citation="Nanda 2023, Attribution Patching; Syed et al. 2023, Attribution Patching Outperforms Automated Circuit Discovery",
    params=AttributionPatchingParams,
    unit="logits",
    needs=("projection", "equal-heads"),
    activations=22,
)
