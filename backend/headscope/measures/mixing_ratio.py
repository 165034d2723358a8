"""How much of a token after attention comes from other tokens (Kobayashi et al. 2021)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.attention import Layer, Reading
from ..core.lazy import Tensor, torch
from .base import Measure, only


def compute(layer: Layer, lens: str, readings: Mapping[str, Reading], params: Any) -> Tensor:
    """||sum_{j != i} g(y_ij)|| / (||sum_{j != i} g(y_ij)|| + ||g(y_ii)||), [Q], 0..1; NaN where both are 0. Off by 1e-6 at most.

    The norm of the sum, not the sum of the norms. ||g(y_ii)|| is the diagonal of the lens.
    """
    preserved = readings[lens].map[0].diagonal().double()
    mixed = torch.linalg.vector_norm(_mixed(layer), dim=-1)
    ratio: Tensor = mixed / (mixed + preserved)
    return ratio.to(readings[lens].map.dtype)


def _mixed(layer: Layer) -> Tensor:
    """sum_{j != i} g(y_ij) of every query: [Q, d] in float64."""
    projection, norm = layer.projection, layer.stream.norm
    assert projection is not None  # noqa: S101 - the need "projection" promises it
    per_group = layer.weights.shape[0] // layer.values.shape[0]
    own = layer.weights.diagonal(dim1=1, dim2=2)[..., None].double()  # [H, Q, 1]
    others = layer.output.double() - own * layer.values.double().repeat_interleave(per_group, dim=0)  # [H, Q, D]
    result = others.new_zeros(others.shape[1], projection.shape[2])
    for output, part in zip(others, projection, strict=True):
        result.addmm_(output, part.double())
    return result if norm is None else norm.linear(result, norm.scale[:, None])


MIXING_RATIO = Measure(
    name="mixing_ratio",
    title="Mixing ratio",
    doc="How much of a token after the attention block comes from other tokens, against what stays its own: through its own values and the residual connection.",
    not_="Not a share of a whole: two norms are compared, and the vectors may cancel or point the same way. It ends before the feed-forward part.",
    citation="Kobayashi et al. 2021, Incorporating Residual and Normalization Layers into Analysis of Masked Language Models, sec. 3.3",
    range=(0.0, 1.0),
    shape="L Q",
    of="layer",
    accepts=only("norm-residual"),
    reads=("norm-residual",),
    needs=("values", "projection", "residual", "same-tokens"),
    compute=compute,
)
