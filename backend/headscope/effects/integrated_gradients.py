"""What each attention weight of a layer adds to a target on the way from no attention in that layer to all of it."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from .base import EffectMethod, EffectParams


class IntegratedGradientsParams(EffectParams):
    """How finely the path is followed."""

    steps: int = Field(
        default=16,
        ge=1,
        le=256,
        description="Number of points on the path at which the gradient is taken. More take longer, and make `completeness_error` smaller unless the target jumps there.",
    )


def places_on_path(steps: int) -> list[tuple[float, float]]:
    """Return places in 0..1, each with a factor: the sum of factor times f(place) is about the mean of f (Gauss-Legendre)."""
    places, factors = np.polynomial.legendre.leggauss(steps)
    return list(zip(((places + 1) / 2).tolist(), (factors / 2).tolist(), strict=True))


INTEGRATED_GRADIENTS = EffectMethod(
    name="integrated-gradients",
    title="Integrated gradients",
    doc="A map per head: each attention weight times the mean gradient of the target there, while the weights of its whole layer grow from 0 to what they are. "
    "A head's effect is the sum of its map, and the effects of a layer sum to what the target loses without its attention.",
    not_="Not what happens without one weight: all weights of a layer grow together, on a path of inputs that the model has never seen.",
    citation="Hao et al. 2021, Self-Attention Attribution, sec. 3; Sundararajan et al. 2017, Axiomatic Attribution for Deep Networks",
    params=IntegratedGradientsParams,
    unit="logits",
    needs=("values", "projection", "hidden", "equal-heads"),
    activations=22,
    maps=True,
    tokens=256,
)
