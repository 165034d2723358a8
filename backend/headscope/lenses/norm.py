"""Norms of each token's contribution to a head's output (Kobayashi et al. 2020)."""

from __future__ import annotations

from typing import Any

from ..core.attention import Layer, Reading, required
from ..core.lazy import Tensor, torch
from .base import Lens


def read(layer: Layer, params: Any) -> Reading:
    """Return ||A_ij f(x_j)|| = |A_ij| ||v_j W_O||, with f(x) = (x W_V + b_V) W_O of this head, without the bias of the output projection. [H, Q, K], >= 0.

    Only the norms of K vectors are needed, not the Q × K vectors themselves, and in D dimensions they are as long as in the model's d.
    """
    lengths = norms(layer.values, required(layer.projection_factors))  # [H, K]
    return Reading(layer.weights.abs().mul_(lengths[:, None].to(layer.weights.dtype)))


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
