"""Norms of what each token contributes to a head's output (Kobayashi et al. 2020)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..types import Layer, Lens, Reading

if TYPE_CHECKING:
    from torch import Tensor

# Projected vectors of at least so many tokens at once, and of more while they stay below so many bytes: they are d wide, where values are only D.
TOKENS, SCRATCH_BYTES = 64, 4 * 1024 * 1024


def read(layer: Layer, params: Any) -> Reading:
    """||A_ij f(x_j)|| = |A_ij| ||v_j W_O||, with f(x) = (x W_V + b_V) W_O of this head, without the bias of the output projection. [H, Q, K], >= 0.

    Only norms of n vectors are needed, not the n × n vectors themselves.
    """
    if layer.projection is None:
        raise ValueError("the norm lens needs the output projection")
    lengths = norms(layer.values, layer.projection)
    return Reading((layer.weights * lengths[:, None].to(layer.weights.dtype)).abs_())


def norms(values: Tensor, projection: Tensor) -> Tensor:
    """values [G, K, D], projection [H, D, d] -> ||v_j W_O|| of every head, [H, K]. Head i reads the values of i // (H // G)."""
    import torch

    # A Gram matrix W_O W_Oᵀ per head would do with fewer products for long inputs. But it squares the condition number, so it has to be made in float64, which
    # costs as much as this does for several hundred tokens; and this is at most a twelfth of the layer's own products.
    heads, _, width = projection.shape
    per_group = heads // values.shape[0]
    step = max(TOKENS, SCRATCH_BYTES // (heads * width * projection.element_size()))
    parts = []
    for block in torch.split(values.to(projection.dtype), step, dim=1):
        projected = (block if per_group == 1 else block.repeat_interleave(per_group, 0)) @ projection  # [H, k, d]
        parts.append(torch.linalg.vector_norm(projected, dim=-1))
    return torch.cat(parts, dim=-1)


NORM = Lens(
    name="norm",
    title="Norm of contributions",
    doc="How long the vector is that a key token adds to the head's output at a query token: the weight times the norm of the token's projected value.",
    not_="Not a share and not a distribution: it has the scale of the hidden states, and long vectors of several tokens can cancel each other. "
    "It looks at one head before the heads are added up.",
    citation="Kobayashi et al. 2020, Attention is Not Only a Weight, sec. 2",
    unit="norm of hidden states",
    range=(0.0, None),
    needs=("values", "projection"),
    read=read,
)
