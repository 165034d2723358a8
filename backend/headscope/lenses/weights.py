"""The attention weights as the model computed them."""

from __future__ import annotations

from typing import Any

from ..core.attention import Layer, Reading
from ._factors import weight_factors
from ._rows import weight_rows
from .base import Factoring, Lens


def read(layer: Layer, params: Any) -> Reading:
    """Return the weights [H, Q, K]: rows sum to 1 over the allowed keys."""
    return Reading(layer.weights)


WEIGHTS = Lens(
    name="weights",
    title="Weights",
    doc="The attention weights as the model computed them: how much of each key token's value a query token receives.",
    not_="Not a measure of importance: a large weight on a token with a small value vector, or in the null space of the values, changes nothing.",
    citation="Vaswani et al. 2017, Attention Is All You Need, eq. 1",
    range=(0.0, 1.0),
    distribution=True,
    phrases={"": ("raw weights", "raw attention", "attention weights", "raw", "plain attention")},
    read=read,
    factoring=Factoring(weight_factors, weight_rows, softmax=True),
)
