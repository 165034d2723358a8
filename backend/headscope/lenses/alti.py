"""How much nearer every token brings the attention block's output to its final value (Ferrando et al. 2022)."""

from __future__ import annotations

from collections.abc import Callable

from pydantic import Field

from ..core.attention import Layer, Reading, required
from ..core.declarations import Params
from ..core.lazy import Tensor, torch
from ._contributions import arithmetic, blocks, gated, own, prove, shares, transformed, weights_of
from ._gate import fold
from ._joined import join
from .base import Lens

# Vectors at once: few enough to stay in the processor's cache for several passes over them.
CACHE_BYTES = 2 * 1024 * 1024
KEYS = 16


class AltiParams(Params):
    """Whether layers are joined."""

    rollout: bool = Field(
        default=True,
        description="Multiply the layers, down to the input tokens (the paper's ALTI); without it each layer on its own.",
    )


def read(layer: Layer, params: AltiParams) -> Reading:
    """Return max(0, ||y_i||₁ - ||y_i - y_ij||₁) as shares of the row, [1, Q, K], 0..1 (sec. 3 of the paper); y_i is the block's output, biases included.

    Rows are divided by their sum in the end, so the scale of the normalisation can be left out. A row to which no token contributes is NaN and counted as
    undefined. Raises Unsupported where the heads' outputs do not add up to what the residual stream receives.
    """
    layer = fold(layer)
    (_, queries, keys), width, dtype = layer.weights.shape, required(layer.projection).shape[2], arithmetic(layer)
    resultant = layer.stream.resultant(prove(layer)).to(dtype)  # [Q, d]
    contributions = layer.weights.new_zeros(queries, keys, dtype=dtype)
    for block in blocks(keys, 1, KEYS):
        make = _vectors(layer, block, dtype)
        first = block.start if layer.keys.rule == "prefix" else 0
        numbers = width if layer.gate is None else width + 3 * layer.gate.shape[0] * layer.gate.shape[2]
        for part in blocks(queries - first, KEYS * numbers * dtype.itemsize, CACHE_BYTES):
            rows = slice(first + part.start, first + part.stop)
            contributions[rows, block] = _nearer(make(rows), resultant[rows]).T
    contributions.diagonal().copy_(_nearer(own(layer).to(dtype), resultant))
    return shares(contributions.clamp_min_(0), layer)


def _vectors(layer: Layer, keys: slice, dtype: torch.dtype) -> Callable[[slice], Tensor]:
    """Return what gives the vectors that some keys add to some queries, [K, Q, d]."""
    if layer.gate is not None:
        return lambda queries: gated(layer, queries, keys, dtype)
    vectors, weights = transformed(layer, keys), weights_of(layer, keys, dtype)  # [K, H, d], [K, Q, H]
    return lambda queries: weights[:, queries] @ vectors


def _nearer(added: Tensor, resultant: Tensor) -> Tensor:
    """Return ||y||₁ - ||y - t||₁ for t [..., Q, d] and y [Q, d], [..., Q]; overwrites t.

    Per dimension, with t measured in the direction of y, |y| - |y - t| is t up to |y| and 2 |y| - t beyond. No large numbers are subtracted, so small
    contributions stay exact.
    """
    along = added.mul_(torch.where(resultant < 0, -1.0, 1.0).to(added.dtype))
    total = along.sum(-1)
    return total.sub_(along.sub_(resultant.abs()).clamp_min_(0).sum(-1), alpha=2)


ALTI = Lens(
    name="alti",
    title="ALTI",
    doc="How much nearer each token's vector brings the output of the attention block (residual stream and normalisation included) to its final value, as shares of the row.",
    not_="Not additive: shares are of distances, and tokens that pull away from the output count as 0. Not the feed-forward part.",
    citation="Ferrando et al. 2022, Measuring the Mixing of Contextual Information in the Transformer, sec. 3",
    params=AltiParams,
    range=(0.0, 1.0),
    distribution=True,
    needs=("values", "projection", "residual", "same-tokens"),
    of="layer",
    undefined="no token contributes",
    join=join,
    read=read,
)
