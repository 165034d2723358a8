"""Norms of every token's contribution to the residual stream, including the stream itself and the normalisation after it (Kobayashi et al. 2021)."""

from __future__ import annotations

from typing import Any

from ..core.attention import Layer, Reading, required
from ..core.lazy import Tensor, torch
from ._contributions import blocks, gated, own, prove, transformed, weights_of
from ._gate import fold
from .base import Lens

KEYS = 16  # of gated heads, at once


def read(layer: Layer, params: Any) -> Reading:
    """Return ||g(y_ij)||, [1, Q, K], >= 0: y_ij = sum_h A^h_ij f_h(x_j), plus x_i where i = j (eq. 5 and 8 of the paper).

    Uses the Gram matrices F_j [H, H] of the f_h(x_j), in float64: ||y_ij||² = a_ijᵀ F_j a_ij. That takes Q K H² steps instead of Q K H d for the vectors
    themselves, which a gate of several numbers per head makes necessary. The error is at most 1e-6 of the sum of the heads' norms. Raises Unsupported where
    the heads' outputs do not add up to what the residual stream receives.
    """
    layer = fold(layer)
    prove(layer)
    norms = _norms(layer) if layer.gate is None else _gated_norms(layer)
    norms.diagonal().copy_(torch.linalg.vector_norm(own(layer), dim=-1))
    scales = layer.stream.scale(torch.float64)
    norms = norms if scales is None else norms.mul_(scales)
    return Reading(norms.to(torch.promote_types(layer.weights.dtype, torch.float32))[None])


def _norms(layer: Layer) -> Tensor:
    """Return the norm of what each key adds to each query, without the scale of the normalisation, [Q, K] in float64."""
    (heads, queries, keys), width = layer.weights.shape, required(layer.projection).shape[2]
    norms = layer.weights.new_empty(queries, keys, dtype=torch.float64)
    for block in blocks(keys, 8 * heads * (2 * width + 3 * queries)):
        vectors = transformed(layer, block).double()  # [K, H, d]
        weights = weights_of(layer, block, torch.float64)  # [K, Q, H]
        squares = (weights @ (vectors @ vectors.mT)).mul_(weights).sum(-1)  # [K, Q]
        norms[:, block] = squares.clamp_min_(0).sqrt_().T
    return norms


def _gated_norms(layer: Layer) -> Tensor:
    """Return the same for gated heads. Keys that causal queries do not see stay 0."""
    (_, queries, keys), (heads, width, model) = layer.weights.shape, required(layer.projection).shape
    norms = layer.weights.new_zeros(queries, keys, dtype=torch.float64)
    for rows in blocks(queries, 8 * KEYS * (3 * heads * width + 2 * model)):
        seen = rows.stop if layer.keys.rule == "prefix" else keys
        for block in blocks(seen, 1, KEYS):
            norms[rows, block] = torch.linalg.vector_norm(gated(layer, rows, block, torch.float64), dim=-1).T
    return norms


NORM_RESIDUAL = Lens(
    name="norm-residual",
    title="Norms with the residual stream",
    doc="The length of the vector that each token adds to another through all heads of the layer. The diagonal includes the token's own residual connection, "
    "and in models that normalise the sum, the vectors go through that normalisation.",
    not_="Not a distribution: rows do not sum to 1, and vectors can cancel, so their norms add up to more than the norm of their sum. "
    "The feed-forward part is not included, nor is the bias of the output projection, which belongs to no token.",
    citation="Kobayashi et al. 2021, Incorporating Residual and Normalization Layers into Analysis of Masked Language Models, sec. 3",
    range=(0.0, None),
    unit="norm of hidden states",
    needs=("values", "projection", "residual", "same-tokens"),
    of="layer",
    read=read,
)
