"""The contribution of every token to the residual stream through one layer's attention.

    y_ij = sum_h A^h_ij f_h(x_j)  (+ x_i where i = j),      f_h(x_j) = v^h_j W_O^h

In models that normalise the sum, y_ij goes through that normalisation, which is linear once its statistics are fixed: g(y) = gain * (y - mean(y)) * scale_i.
Where attention's result is normalised before it is added (sandwich norms) or multiplied by a gain (layer scale), so is every f_h(x_j), but not x_i.
Where a gate multiplies the heads' outputs, f_h(x_j) depends on the query, too: (v^h_j * g^h_i) W_O^h.
Scales depend on the query only, so they are left out here and applied by the caller, once per row. The bias of the output projection belongs to no token.
All y_ij of a layer are Q * K * d numbers, so they are computed in blocks.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..core.attention import Layer, Reading, required
from ..core.lazy import Tensor, torch
from ..errors import Unsupported

# Scratch memory of one block.
BLOCK_BYTES = 32 * 1024 * 1024


def arithmetic(layer: Layer) -> torch.dtype:
    """Return the type to compute in: float32, or wider if the layer is."""
    return torch.promote_types(layer.values.dtype, torch.float32)


def blocks(count: int, bytes_each: int, most: int = BLOCK_BYTES) -> Iterator[slice]:
    """Yield slices of 0..count, each as long as fits into `most` bytes."""
    step = max(1, most // max(1, bytes_each))
    for start in range(0, count, step):
        yield slice(start, min(count, start + step))


def transformed(layer: Layer, keys: slice) -> Tensor:
    """Return f_h(x_j) of some keys, through the normalisation without its scale: [K, H, d]."""
    dtype = arithmetic(layer)
    values, projection = layer.values_by_head[:, keys], required(layer.projection)
    vectors = values.to(dtype) @ projection.to(dtype)  # [H, K, D] @ [H, D, d] -> [H, K, d]
    return layer.stream.linear(vectors.transpose(0, 1))  # [K, H, d]


def gated(layer: Layer, queries: slice, keys: slice, dtype: torch.dtype) -> Tensor:
    """Return sum_h A^h_ij (v^h_j * g^h_i) W_O^h of some queries and keys, through the normalisation without its scale: [K, Q, d].

    The gated values of all heads side by side are Q K H D numbers, so that one product with the whole projection gives all vectors.
    """
    weights, gate = layer.weights[:, queries, keys].to(dtype), required(layer.gate)[:, queries].to(dtype)
    values = layer.values_by_head[:, keys].to(dtype)
    parts = torch.einsum("hqk,hkc,hqc->kqhc", weights, values, gate)
    return layer.stream.linear(parts.flatten(2) @ required(layer.projection).to(dtype).flatten(0, 1))


def weights_of(layer: Layer, keys: slice, dtype: torch.dtype) -> Tensor:
    """Return the weights of some keys with the heads last: [K, Q, H]."""
    return layer.weights[:, :, keys].permute(2, 1, 0).to(dtype, memory_format=torch.contiguous_format)


def own(layer: Layer) -> Tensor:
    """Return y_ii of every query, through the normalisation without its scale: [Q, d] in float64. Queries and keys are the same tokens."""
    weights = layer.weights.diagonal(dim1=1, dim2=2)[..., None]  # [H, Q, K] -> [H, K, 1]
    added = layer.project(layer.values_by_head.double() * weights)
    return layer.stream.add_stream(added)


def prove(layer: Layer) -> Tensor:
    """Return what attention adds to the residual stream, without the bias, as the sum over the heads' outputs: [Q, d] in float64.

    Raises Unsupported if the output projection gave something else, because the model changes the outputs in between: no sum over heads is then right.
    """
    ours, given = layer.project(layer.output), layer.stream.projected
    if given is not None:
        theirs = given.double() - required(layer.stream.bias).double()
        rounding = 16 * layer.epsilon * layer.output.double().norm() * required(layer.projection).double().norm()
        if bool((ours - theirs).norm() > (1e-3 + 4 * layer.rounding) * (theirs.norm() + given.norm()) + rounding):
            quantised = ", or its quantised layers round more on this input than on the probe" if layer.rounding else ""
            raise Unsupported(
                "The outputs of this model's heads do not add up to what its residual stream receives, or the mechanism rescales them"
                f"{quantised}. Choose a lens of single heads, or another mechanism."
            )
    return ours


def shares(contributions: Tensor, layer: Layer) -> Reading:
    """Turn contributions [Q, K], all at least 0, into shares of their row. A row of zeros becomes NaN and is counted as undefined."""
    sums = contributions.sum(-1, keepdim=True, dtype=torch.float64)
    empty = sums == 0
    shared = (contributions / sums).masked_fill_(empty, torch.nan)
    dtype = torch.promote_types(layer.weights.dtype, torch.float32)
    return Reading(shared.to(dtype)[None], undefined=empty.sum()[None])
