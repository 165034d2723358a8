"""Effective attention the way the code released with the paper computes it: as published, not as defined."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from ..core.attention import Layer, Reading
from ..core.lazy import Tensor, torch
from ..errors import InvalidRequest, Unsupported
from .base import Lens


class EffectivePublishedParams(BaseModel):
    """How far the input is padded."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    pad_to: int = Field(
        default=128,
        ge=1,
        le=512,
        description="Number of tokens that the input is padded to before the values are decomposed. 128 in the paper.",
    )


def read(layer: Layer, params: EffectivePublishedParams) -> Reading:
    """Weights minus their projection on what the published code takes for the null space of the padded values. [H, Q, K], signed.

    Its steps, all in float32: a singular value decomposition of the padded values of every head, a bound of eps(float32) times the number of heads, the
    largest number of singular values above it as the first column of every head's null space, and the columns of the padding cut off after the projection.
    So map @ values is not the head's output. Raises InvalidRequest for more than `pad_to` tokens, Unsupported where the input can't be padded.
    """
    padded = _padded(layer, params.pad_to)
    decomposed = padded.float()
    # A padded row is the row itself and zeros, so only the real tokens' part of each basis vector meets it.
    rows, real = layer.weights.float(), layer.weights.shape[-1]
    bound = torch.finfo(torch.float32).eps * decomposed.shape[0]
    start = int((torch.linalg.svdvals(decomposed) > bound).sum(-1).max())
    vectors = torch.linalg.svd(decomposed[list(layer.heads)], full_matrices=True).U  # [H, P, P]
    basis = vectors[:, :real, start:]
    return Reading((rows - (rows @ basis) @ basis.mT).to(layer.weights.dtype), signed=True)


def _padded(layer: Layer, pad_to: int) -> Tensor:
    """Values of every head of the layer for the padded input, [N, P, D]."""
    tokens = layer.weights.shape[-1]
    if tokens > pad_to:
        raise InvalidRequest(
            f"Effective attention as published takes at most pad_to = {pad_to} tokens, and these are {tokens}. "
            "Shorten the text or raise pad_to.",
            pointer="/lenses",
            limit=pad_to,
            actual=tokens,
        )
    if layer.padded_values is None:
        raise Unsupported(
            "Effective attention as published needs the values of the padded input, which can't be had here. "
            'Use the lens "effective".'
        )
    if layer.padded_values.shape[1] != pad_to:
        raise ValueError(f"values padded to {layer.padded_values.shape[1]} tokens, not to {pad_to}")
    return layer.padded_values


EFFECTIVE_PUBLISHED = Lens(
    name="effective-published",
    title="Effective attention, as published",
    doc="As published: effective attention the way the code released with the paper computes it, from the values of the padded input.",
    not_="Not effective attention as the paper defines it: padding counts as tokens, and the map no longer gives the head's output. "
    "It is here to be compared with published figures; use effective for everything else.",
    citation="Sun & Marasović 2021, released code, class BertEffectiveSelfAttention",
    params=EffectivePublishedParams,
    needs=("values", "padding"),
    signed=True,
    read=read,
)
