"""Rank-like numbers of a head's map or of its output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from ..core.attention import Layer, Reading
from ..core.declarations import Params
from ..core.lazy import Tensor, torch
from ..errors import Unsupported
from . import _spectrum
from ._maps import nothing
from .base import Measure, is_of_heads

# Above this product of size and machine epsilon, as in half precision, the threshold for zero is meaningless.
COARSE = 0.05


class RankParams(Params):
    """Which matrix is decomposed."""

    of: Literal["map", "output"] = Field(
        default="map",
        description="The map that the lens reads, or the head's output (weights times values, gated if the model gates it), which is the same for every lens.",
    )


def ranks(matrices: Tensor, epsilon: float) -> Tensor:
    """Return numerical, stable and effective rank and participation ratio of each matrix. [H, Q, K] -> [H, 4] in float64.

    All are 0 for a matrix of zeros, NaN for one with undefined rows. The numerical rank is NaN where epsilon is too coarse to decide it.
    """
    defined = matrices.isfinite().all(-1).all(-1)  # [H]
    sigma = torch.linalg.svdvals(matrices.where(defined[:, None, None], 0.0).double())  # [H, min(Q, K)]
    size = max(matrices.shape[-2:])
    numerical = _spectrum.numerical(sigma, size, epsilon)
    if size * epsilon > COARSE:
        numerical.fill_(torch.nan)
    columns = [numerical, _spectrum.stable(sigma), _spectrum.effective(sigma), _spectrum.participation(sigma)]
    return torch.stack(columns, dim=-1).where(defined[:, None], torch.nan)


def compute(layer: Layer, lens: str, readings: Mapping[str, Reading], params: RankParams) -> Tensor:
    """Return `ranks` of the map or the output, [H, 4]. Raises Unsupported for outputs that were not captured."""
    if params.of == "output" and layer.output.numel() == 0:
        raise Unsupported(
            'The outputs of this model\'s heads cannot be captured. Use the rank of the map (of: "map").',
            pointer="/measures",
        )
    matrices = layer.written if params.of == "output" else readings[lens].map
    return ranks(matrices, max(layer.epsilon, torch.finfo(matrices.dtype).eps))


RANK = Measure(
    name="rank",
    title="Rank",
    doc="How many dimensions a head's map, or its output, uses: counted (numerical), relative to the largest singular value (stable), and as the effective number of "
    "singular values (effective, participation). 1 means that all queries attend alike.",
    not_="Not a judgement on the head. The numerical rank of a causal map tells nothing: the map is triangular with a positive diagonal, so its exact rank is full.",
    citation="Effective rank: Roy & Vetterli 2007; stable rank: Rudelson & Vershynin 2007",
    params=RankParams,
    unit="dimensions",
    range=(0.0, None),
    shape="L H C",
    accepts=is_of_heads,
    columns=("numerical", "stable", "effective", "participation"),
    phrases={
        "numerical": ("numerical rank",),
        "stable": ("stable rank",),
        "effective": ("effective rank",),
    },
    compute=compute,
    looks=nothing,
)
