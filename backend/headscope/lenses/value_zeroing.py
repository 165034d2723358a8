"""How far a token's hidden state turns when another token's values are set to 0 in the layer (Mohebbi et al. 2023)."""

from __future__ import annotations

from pydantic import Field

from ..core.attention import Layer, Reading, required
from ..core.declarations import Params
from ..core.lazy import Tensor, torch
from ..errors import Unsupported
from ._contributions import blocks, shares
from ._joined import join
from .base import Lens

# Scratch memory of the inputs that are run through a layer at once.
BLOCK_BYTES = 64 * 1024 * 1024
# The largest turn of a hidden state by rounding alone: 32 epsilons of float32, since many models normalise in float32 whatever type they compute in.
NOISE = 32 * 2.0**-23


class ValueZeroingParams(Params):
    """Whether layers are joined."""

    rollout: bool = Field(
        default=False, description="Multiply the layers, down to the input tokens; without it each layer on its own."
    )


def read(layer: Layer, params: ValueZeroingParams) -> Reading:
    """Return 1 - cos(x_i, x_i without v_j) of the hidden states after the layer, as shares of the row: [1, Q, K], 0..1.

    The layer is run once for every key: attention weights stay, the values of that key are 0 in all heads. Turns below 4e-6 are rounding and count as 0.
    A row that nothing changes is NaN and counted as undefined. Raises Unsupported in half precision, which is too coarse; for a layer whose second run
    gives another result; and for joined layers whose queries and keys differ.
    """
    if layer.epsilon > 1e-4:
        raise Unsupported(
            'Value zeroing needs a model in float32 or wider: in half precision its distances are rounding errors. Ask for dtype="float32".'
        )
    if params.rollout and not layer.axes.same:
        raise Unsupported(
            "Layers can be joined only where queries and keys are the same tokens. Switch rollout off for this lens."
        )
    replay = required(layer.stream.replay)
    again = replay(layer.output[None])[0].double()  # [Q, d]
    _check(again, required(layer.stream.after).double())
    (heads, queries, keys), width = layer.weights.shape, layer.values.shape[2]
    contributions = layer.weights.new_empty(queries, keys, dtype=again.dtype)
    # Numbers per query and key: outputs twice; hidden states in float64, and four times as wide in the feed-forward part.
    numbers = 2 * heads * width + 12 * again.shape[1]
    for block in blocks(keys, 4 * queries * numbers, BLOCK_BYTES):
        hidden = replay(_without(layer, block)).double()  # [K, Q, d]
        contributions[:, block] = _turned(again, hidden).T
    contributions.masked_fill_(contributions < NOISE**2 / 2, 0)
    contributions.masked_fill_((layer.weights == 0).all(0), 0)
    return shares(contributions, layer)


def _check(again: Tensor, after: Tensor) -> None:
    """Raise Unsupported unless a second run of the layer gives the same result."""
    if bool((again - after).norm() > 1e-3 * after.norm()):
        raise Unsupported(
            "A layer of this model gives another result when it runs a second time, so values cannot be set to 0 one by one. Choose another lens."
        )


def _without(layer: Layer, keys: slice) -> Tensor:
    """Return the outputs of the heads without the values of one key each: [K, H, Q, D]."""
    values = layer.values_by_head[:, keys].transpose(0, 1)  # [H, K, D] -> [K, H, D]
    weights = layer.weights[:, :, keys].permute(2, 0, 1)  # [H, Q, K] -> [K, H, Q]
    removed = weights[..., None].to(values.dtype) * values[:, :, None]  # [K, H, Q, 1] * [K, H, 1, D]
    return removed.neg_().add_(layer.output)


def _turned(one: Tensor, other: Tensor) -> Tensor:
    """Return 1 - cos of vectors [..., Q, d], [..., Q], as half the squared distance of unit vectors: exact even if they are nearly the same.

    Two zero vectors are the same; a zero vector and any other are at right angles.
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
    not_="Not additive: values are set to 0 one token at a time, so two tokens that can replace each other may both count little. "
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
