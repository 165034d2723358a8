"""How far a token's hidden state turns when another token's values are taken out of the layer (Mohebbi et al. 2023)."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from ..core.attention import Layer, Reading
from ..core.lazy import Tensor, torch
from ..errors import Unsupported
from ._contributions import blocks, required, shares
from ._joined import join
from .base import Lens

# Scratch memory of the runs that go through a layer at once.
BLOCK_BYTES = 64 * 1024 * 1024
# What a layer's hidden states may be turned by through rounding alone: 32 epsilons of float32, since many models normalise in float32 whatever else they
# compute in.
NOISE = 32 * 2.0**-23


class ValueZeroingParams(BaseModel):
    """Whether layers are joined."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
    rollout: bool = Field(
        default=False, description="Multiply through the layers, down to the input tokens; else each layer on its own."
    )


def read(layer: Layer, params: ValueZeroingParams) -> Reading:
    """1 - cos(x_i, x_i without v_j) of the hidden states after the layer, as shares of the row: [1, Q, K], 0..1.

    The layer is run once for every key: attention weights stay, the values of that key are 0 in all heads. What turns a hidden state by less than
    4e-6 is rounding and counts as 0. A row that nothing changes has no shares: it is NaN, and counted. Raises Unsupported in half precision, where
    all is rounding; for a layer that run again gives something else; and for joined layers whose queries and keys differ.
    """
    if layer.epsilon > 1e-4:
        raise Unsupported(
            'Value zeroing needs a model in float32 or wider: in half precision its distances are rounding errors. Ask for dtype="float32".'
        )
    if params.rollout and not layer.axes.same:
        raise Unsupported(
            "Layers can be joined only where queries and keys are the same tokens. Ask for this lens with rollout off."
        )
    replay = layer.stream.replay
    assert replay is not None  # noqa: S101 - the need "replay" promises it
    again = replay(layer.output[None])[0].double()  # [Q, d]
    _check(again, required(layer.stream.after).double())
    (heads, queries, keys), width = layer.weights.shape, layer.values.shape[2]
    contributions = layer.weights.new_empty(queries, keys, dtype=again.dtype)
    # Per token and key: outputs twice; hidden states in float64 and, four times as wide, in the feed-forward part.
    numbers = 2 * heads * width + 12 * again.shape[1]
    for block in blocks(keys, 4 * queries * numbers, BLOCK_BYTES):
        hidden = replay(_without(layer, block)).double()  # [K, Q, d]
        contributions[:, block] = _turned(again, hidden).T
    contributions.masked_fill_(contributions < NOISE**2 / 2, 0)
    contributions.masked_fill_((layer.weights == 0).all(0), 0)
    return shares(contributions, layer)


def _check(again: Tensor, after: Tensor) -> None:
    """Whether the layer run again gives what it gave."""
    if bool((again - after).norm() > 1e-3 * after.norm()):
        raise Unsupported(
            "Run a second time, a layer of this model gives another result, so values can't be taken out of it one by one. Ask for another lens."
        )


def _without(layer: Layer, keys: slice) -> Tensor:
    """Outputs of the heads without the values of one key each: [K, H, Q, D]."""
    per_group = layer.weights.shape[0] // layer.values.shape[0]
    values = layer.values[:, keys].repeat_interleave(per_group, dim=0).transpose(0, 1)  # [K, H, D]
    weights = layer.weights[:, :, keys].permute(2, 0, 1)  # [K, H, Q]
    taken = weights[..., None].to(values.dtype) * values[:, :, None]
    return taken.neg_().add_(layer.output)


def _turned(one: Tensor, other: Tensor) -> Tensor:
    """1 - cos of vectors [..., Q, d], [..., Q], as half the squared distance of unit vectors: exact also where they are nearly the same.

    Two zero vectors are the same; a zero vector and another one are at right angles.
    """
    lengths = [torch.linalg.vector_norm(vectors, dim=-1, keepdim=True) for vectors in (one, other)]
    tiny = torch.finfo(one.dtype).tiny
    units = [vectors / length.clamp_min(tiny) for vectors, length in zip((one, other), lengths, strict=True)]
    apart: Tensor = (units[0] - units[1]).square_().sum(-1) / 2
    lone = (lengths[0] == 0) != (lengths[1] == 0)
    return apart.masked_fill_(lone.squeeze(-1), 1)


VALUE_ZEROING = Lens(
    name="value-zeroing",
    title="Value zeroing",
    doc="How far a token's hidden state after the layer turns when the values of another token are set to 0 and the weights stay, as shares of the row.",
    not_="Not additive: values are taken out one token at a time, so two tokens that stand in for one another may both count little. "
    "Shares hide whether a row changes much or hardly at all.",
    citation="Mohebbi et al. 2023, Quantifying Context Mixing in Transformers, sec. 3",
    params=ValueZeroingParams,
    range=(0.0, 1.0),
    distribution=True,
    needs=("values", "replay"),
    of="layer",
    undefined="no token contributes",
    join=join,
    read=read,
)
