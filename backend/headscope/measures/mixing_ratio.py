"""How much of a token after attention comes from other tokens (Kobayashi et al. 2021)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.attention import Layer, Reading
from ..core.lazy import Tensor, torch
from .base import Measure, only


def compute(layer: Layer, lens: str, readings: Mapping[str, Reading], params: Any) -> Tensor:
    """Return ||sum_{j != i} g(y_ij)|| / (||sum_{j != i} g(y_ij)|| + ||g(y_ii)||), [Q], 0..1; NaN where both are 0. The error is at most 1e-6.

    It is the norm of the sum, not the sum of the norms. ||g(y_ii)|| is the diagonal of the lens.
    """
    preserved = readings[lens].map[0].diagonal().double()
    mixed = torch.linalg.vector_norm(_mixed(layer), dim=-1)
    ratio: Tensor = mixed / (mixed + preserved)
    return ratio.to(readings[lens].map.dtype)


def _mixed(layer: Layer) -> Tensor:
    """Return sum_{j != i} g(y_ij) of every query: [Q, d] in float64."""
    own = layer.weights.diagonal(dim1=1, dim2=2)[..., None].double()  # [H, Q, K] -> [H, Q, 1]
    mixed = layer.project(layer.output.double() - own * layer.values_by_head.double())  # [H, Q, D] -> [Q, d]
    norm = layer.stream.norm
    return mixed if norm is None else norm.linear(mixed, norm.scale[:, None])


MIXING_RATIO = Measure(
    name="mixing_ratio",
    title="Mixing ratio",
    doc="How much of a token after the attention block comes from other tokens, compared with what comes from itself through its own values and the residual connection.",
    not_="Not a share of a whole: it compares two norms, and the vectors may cancel or point the same way. It ends before the feed-forward part.",
    citation="Kobayashi et al. 2021, Incorporating Residual and Normalization Layers into Analysis of Masked Language Models, sec. 3.3",
    range=(0.0, 1.0),
    shape="L Q",
    of="layer",
    accepts=only("norm-residual"),
    reads=("norm-residual",),
    needs=("values", "projection", "residual", "same-tokens"),
    compute=compute,
)
