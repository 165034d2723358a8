"""Norms of each token's contribution to a head's output (Kobayashi et al. 2020)."""

from __future__ import annotations

from typing import Any

from ..core.attention import Layer, Reading, required
from ..core.lazy import Tensor, torch
from ._contributions import blocks
from ._gate import fold
from .base import Lens

# Scratch memory of one block of queries: few enough vectors to stay in the processor's cache.
BLOCK_BYTES = 4 * 1024 * 1024


def read(layer: Layer, params: Any) -> Reading:
    """Return ||A_ij f(x_j)|| = |A_ij| ||v_j W_O||, with f(x) = (x W_V + b_V) W_O of this head, without the bias of the output projection. [H, Q, K], >= 0.

    Only the norms of K vectors are needed, not the Q × K vectors themselves, and in D dimensions they are as long as in the model's d. A gate g that
    multiplies the head's output makes them |A_ij| ||(v_j * g_i) W_O||.
    """
    layer = fold(layer)
    weights, factors = layer.weights.abs(), required(layer.projection_factors)
    if layer.gate is not None:
        return Reading(weights.mul_(_gated_norms(layer, layer.gate, factors)))
    lengths = norms(layer.values, factors)  # [H, K]
    return Reading(weights.mul_(lengths[:, None].to(weights.dtype)))


def _gated_norms(layer: Layer, gate: Tensor, factors: Tensor) -> Tensor:
    """Return ||(v_j * g_i) R||, [H, Q, K]: the gate [H, Q, D] multiplies the rows of R instead, which are D × D for every query, in blocks of queries.

    0 where every weight is 0 because a causal model does not see the key.
    """
    (heads, queries, keys), width = layer.weights.shape, gate.shape[2]
    dtype = torch.promote_types(layer.values.dtype, torch.float32)
    lengths = layer.weights.new_zeros(heads, queries, keys)
    for head, values in enumerate(layer.values_by_head.to(dtype)):
        for rows in blocks(queries, (keys + width) * width * dtype.itemsize, BLOCK_BYTES):
            seen = rows.stop if layer.keys.rule == "prefix" else keys
            scaled = gate[head, rows, :, None].to(dtype) * factors[head].to(dtype)  # [Q, D, 1] * [D, D]
            vectors = values[:seen] @ scaled.transpose(0, 1).flatten(1)  # [K, D] @ [D, Q D]
            norm = torch.linalg.vector_norm(vectors.unflatten(1, (-1, width)), dim=-1)  # [K, Q]
            lengths[head, rows, :seen] = norm.T.to(lengths.dtype)
    return lengths


def norms(values: Tensor, factors: Tensor) -> Tensor:
    """Return ||v_j R|| = ||v_j W_O|| of every head, [H, K], from values [G, K, D] and factors R [H, D, D] of the projections, in float32 at least.

    Head i reads the values of i // (H // G).
    """
    values = values.to(torch.promote_types(values.dtype, torch.float32))
    by_group = factors.to(values.dtype).reshape(values.shape[0], -1, *factors.shape[1:])  # [G, H / G, D, D]
    vectors = values[:, None] @ by_group  # [G, 1, K, D] @ [G, H / G, D, D] -> [G, H / G, K, D]
    lengths: Tensor = torch.linalg.vector_norm(vectors, dim=-1)  # [G, H / G, K]
    return lengths.flatten(0, 1)  # [H, K]


NORM = Lens(
    name="norm",
    title="Norm of contributions",
    doc="The length of the vector that a key token adds to the head's output at a query token: the weight times the norm of the token's projected value.",
    not_="Not a share and not a distribution: it has the scale of the hidden states, and long vectors of several tokens can cancel. "
    "It considers one head, before the heads are added up.",
    citation="Kobayashi et al. 2020, Attention is Not Only a Weight, sec. 2",
    unit="norm of hidden states",
    range=(0.0, None),
    needs=("values", "projection"),
    phrases={"": ("norms", "norm based attention")},
    read=read,
)
