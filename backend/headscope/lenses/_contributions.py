"""What every token adds to the residual stream through one layer's attention.

    y_ij = sum_h A^h_ij f_h(x_j)  (+ x_i where i = j),      f_h(x_j) = v^h_j W_O^h

In models that normalise the sum, y_ij goes through that normalisation, which is linear at the statistics it had: g(y) = gain * (y - mean(y)) * scale_i. The
scale belongs to the query alone, so it is left out here and applied by the caller, once per row. The bias of the output projection belongs to no token.
All y_ij of a layer would be Q * K * d numbers: nothing here makes more than a block of them.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..core.attention import Layer, Reading
from ..core.lazy import Tensor, torch
from ..errors import Unsupported

# Scratch memory of one block.
BLOCK_BYTES = 32 * 1024 * 1024


def arithmetic(layer: Layer) -> torch.dtype:
    """Type to compute in: float32, or wider if the layer is."""
    return torch.promote_types(layer.values.dtype, torch.float32)


def blocks(count: int, bytes_each: int, most: int = BLOCK_BYTES) -> Iterator[slice]:
    """Slices of 0..count, as many at once as fit."""
    step = max(1, most // max(1, bytes_each))
    for start in range(0, count, step):
        yield slice(start, min(count, start + step))


def transformed(layer: Layer, keys: slice) -> Tensor:
    """f_h(x_j) of some keys, through the normalisation without its scale: [K, H, d]."""
    dtype, values, projection = arithmetic(layer), layer.values[:, keys], required(layer.projection)
    per_group = projection.shape[0] // values.shape[0]
    vectors = values.to(dtype).repeat_interleave(per_group, dim=0) @ projection.to(dtype)  # [H, K, d]
    return linear(layer, vectors.transpose(0, 1))


def weights_of(layer: Layer, keys: slice, dtype: torch.dtype) -> Tensor:
    """Weights of some keys with the heads last: [K, Q, H]."""
    return layer.weights[:, :, keys].permute(2, 1, 0).to(dtype, memory_format=torch.contiguous_format)


def own(layer: Layer) -> Tensor:
    """y_ii of every query, through the normalisation without its scale: [Q, d] in float64. Queries and keys are the same tokens."""
    per_group = layer.weights.shape[0] // layer.values.shape[0]
    values = layer.values.double().repeat_interleave(per_group, dim=0)  # [H, K, D]
    weights = layer.weights.diagonal(dim1=1, dim2=2)[..., None]  # [H, K, 1]
    return linear(layer, through(layer, values.mul_(weights)) + required(layer.stream.before).double())


def through(layer: Layer, outputs: Tensor) -> Tensor:
    """Outputs of the heads [H, Q, D] through the output projection, without its bias: [Q, d] in float64."""
    projection = required(layer.projection)
    result = outputs.new_zeros(outputs.shape[1], projection.shape[2], dtype=torch.float64)
    for output, part in zip(outputs, projection, strict=True):  # head by head: all of it in float64 can be large
        result.addmm_(output.double(), part.double())
    return result


def prove(layer: Layer) -> Tensor:
    """What attention adds to the residual stream, without the bias, added up from the heads' outputs: [Q, d] in float64.

    Raises Unsupported where that is not what the output projection gave, because something changed the outputs on the way: then no sum of ours is the model's.
    """
    ours, given = through(layer, layer.output), layer.stream.projected
    if given is not None:
        theirs = given.double() - required(layer.stream.bias).double()
        rounding = 16 * layer.epsilon * layer.output.double().norm() * required(layer.projection).double().norm()
        if bool((ours - theirs).norm() > 1e-3 * (theirs.norm() + given.norm()) + rounding):
            raise Unsupported(
                "What the heads of this model put out does not add up to what its residual stream gets; a mechanism that rescales outputs does that, too. "
                "Ask for a lens of single heads, or for another mechanism."
            )
    return ours


def linear(layer: Layer, vectors: Tensor) -> Tensor:
    """Vectors [..., d] through the normalisation without its scale, if there is one; keeps their type."""
    norm = layer.stream.norm
    if norm is None:
        return vectors
    return norm.linear(vectors, torch.ones((), device=vectors.device)).to(vectors.dtype)


def scale(layer: Layer, dtype: torch.dtype) -> Tensor | None:
    """What rows are multiplied by in the end, [Q, 1]; None without a normalisation."""
    norm = layer.stream.norm
    return None if norm is None else norm.scale.to(dtype)[:, None]


def shares(contributions: Tensor, layer: Layer) -> Reading:
    """Contributions [Q, K], none of them negative, as shares of their row. A row of zeros has no shares: it becomes NaN and is counted."""
    sums = contributions.sum(-1, keepdim=True, dtype=torch.float64)
    empty = sums == 0
    shared = (contributions / sums).masked_fill_(empty, torch.nan)
    dtype = torch.promote_types(layer.weights.dtype, torch.float32)
    return Reading(shared.to(dtype)[None], undefined=empty.sum()[None])


def required(value: Tensor | None) -> Tensor:
    """What the needs of a lens promise."""
    assert value is not None  # noqa: S101
    return value
