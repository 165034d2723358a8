"""What every head adds to a logit on the direct path, which leads from its output to the logit without passing through a later layer.

The residual stream is a sum, and the final normalisation with its statistics held fixed is linear. A logit is therefore the sum of what the heads, the
feed-forward parts, the embedding and the biases contribute: the product of each one's vector with the gradient of the logit along this path.
"""

from __future__ import annotations

from pydantic import Field

from ..core.lazy import Tensor, torch
from .base import EffectMethod, EffectParams


class ContributionParams(EffectParams):
    """Whether heads are split by token, and which other logits are reported."""

    sources: bool = Field(
        default=False, description="Also split the contribution of every head among the tokens that it attends to."
    )
    writes: int = Field(
        default=0,
        ge=0,
        le=100,
        description="Also report this many tokens, or classes, whose logits every head raises most, and as many that it lowers most: the logit lens of its output.",
    )


def contribution(values: Tensor, gradient: Tensor) -> float:
    """Return what a part contributes whose vectors are `values`; both are [..., d], or can be broadcast to it."""
    return float((values.double() * gradient.double()).sum())


def contributions_of_heads(written: Tensor, gradient: Tensor) -> Tensor:
    """Return what every head contributes, [H] in float64; both are [Q, H, D]: what the output projection is given, and the gradient there."""
    return (written.double() * gradient.double()).sum((0, 2))


def contributions_of_cells(
    weights: Tensor, values: Tensor, output: Tensor, written: Tensor, gradient: Tensor
) -> Tensor:
    """Return what every head contributes at each query through each of the tokens that it attends to, [H, Q, K] in float64.

    weights [H, Q, K], values [G, K, D], output [H, Q, D] = weights @ values; written and gradient [Q, H, D]. Where a gate, or a normalisation with its
    statistics held fixed, multiplies the output before it is written, it multiplies every value in the same way.
    """
    written, gradient = (one.transpose(0, 1).double() for one in (written, gradient))  # [Q, H, D] -> [H, Q, D]
    output = output.double()
    factor = torch.where(output == 0, 0, written / output)
    values = values.double().repeat_interleave(len(weights) // len(values), 0)  # [G, K, D] -> [H, K, D]
    along = (gradient * factor) @ values.mT  # [H, Q, K]
    return weights.double() * along


CONTRIBUTION = EffectMethod(
    name="contribution",
    title="Direct contribution",
    doc="What a head adds to the logit on the direct path: its output, through the final normalisation with its statistics held fixed, times the token's "
    "output vector. The contributions of all heads, feed-forward parts, the embedding and the biases sum to the logit.",
    not_="Not what happens without the head: later layers read what it writes, too, and the statistics of the normalisations would change.",
    citation="Elhage et al. 2021, A Mathematical Framework for Transformer Circuits; Wang et al. 2023, Interpretability in the Wild, sec. 3.1",
    params=ContributionParams,
    unit="logits",
    needs=("projection", "equal-heads"),
    activations=14,
)
