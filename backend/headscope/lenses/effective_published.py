"""Effective attention as computed by the code released with the paper, which differs from the definition."""

from __future__ import annotations

from pydantic import Field

from ..core.attention import Layer, Reading
from ..core.declarations import Params
from ..core.lazy import Tensor, torch
from ..errors import InvalidRequest, Unsupported
from .base import Lens


class EffectivePublishedParams(Params):
    """The length to which the input is padded."""

    pad_to: int = Field(
        default=128,
        ge=1,
        le=512,
        description="Number of tokens to which the input is padded before its values are decomposed. 128 in the paper.",
    )


def read(layer: Layer, params: EffectivePublishedParams) -> Reading:
    """Return the weights minus their projection on what the published code takes for the null space of the padded values. [H, Q, K], signed.

    Its steps, all in float32: decompose the padded values of every head by SVD; count singular values above eps(float32) times the number of heads; take the
    largest count as the first column of every head's null space; project, and drop the columns of the padding. So map @ values is not the head's output.
    Raises InvalidRequest for more than `pad_to` tokens, Unsupported where the input cannot be padded.
    """
    padded = _padded(layer, params.pad_to)
    decomposed = padded.float()
    # A padded row is the row followed by zeros, so only the real tokens' part of each basis vector matters.
    rows, real = layer.weights.float(), layer.weights.shape[-1]
    bound = torch.finfo(torch.float32).eps * decomposed.shape[0]
    start = int((torch.linalg.svdvals(decomposed) > bound).sum(-1).max())
    vectors = torch.linalg.svd(decomposed[list(layer.heads)], full_matrices=True).U  # [N, P, D] -> [H, P, P]
    basis = vectors[:, :real, start:]  # [H, K, P - start]
    return Reading((rows - (rows @ basis) @ basis.mT).to(layer.weights.dtype), signed=True)


def _padded(layer: Layer, pad_to: int) -> Tensor:
    """Return the values of every head of the layer for the padded input, [N, P, D]."""
    tokens = layer.weights.shape[-1]
    if tokens > pad_to:
        raise InvalidRequest(
            f"Effective attention as published takes at most pad_to = {pad_to} tokens, but this input has {tokens}. "
            "Shorten the text or raise pad_to.",
            pointer="/lenses",
            limit=pad_to,
            actual=tokens,
        )
    if layer.padded_values is None:
        raise Unsupported(
            "Effective attention as published needs the values of the padded input, which are not available here. "
            'Use the lens "effective".'
        )
    if layer.padded_values.shape[1] != pad_to:
        raise ValueError(f"values padded to {layer.padded_values.shape[1]} tokens, not to {pad_to}")
    return layer.padded_values


EFFECTIVE_PUBLISHED = Lens(
    name="effective-published",
    title="Effective attention, as published",
    doc="Effective attention as computed by the code released with the paper, from the values of the padded input.",
    not_="Not effective attention as the paper defines it: padding counts as tokens, and the map no longer gives the head's output. "
    "Use it to compare with published figures, and effective for everything else.",
    citation="Sun & Marasović 2021, released code, class BertEffectiveSelfAttention",
    params=EffectivePublishedParams,
    needs=("values", "padding"),
    signed=True,
    read=read,
)
