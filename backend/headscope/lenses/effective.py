"""Effective attention: the part of the weights that reaches the head's output (Sun & Marasović 2021)."""

from __future__ import annotations

from typing import Any

from ..core.attention import Layer, Reading
from ._rowspace import project
from .base import Lens


def read(layer: Layer, params: Any) -> Reading:
    """Weights minus their projection on the left null space of the values, {x : x V = 0}. [H, Q, K], signed.

    For values of n keys and head width D the null space has n - rank dimensions, so the map is the weights themselves up to D keys (when the
    values have full row rank). A query that sees only some keys is projected with the values of those keys alone.
    """
    return project(layer.weights, layer.values, layer.output, layer.keys, layer.epsilon)


EFFECTIVE = Lens(
    name="effective",
    title="Effective attention",
    doc="The part of the weights that reaches the head's output. What lies in the null space of the value vectors multiplies to exactly nothing and is taken out.",
    not_="Not the only matrix with that output: it is the one of smallest norm. It looks at one head only, before the output projection and the residual stream; "
    "rows need not sum to 1 and entries can be negative.",
    citation="Sun & Marasović 2021, Effective Attention Sheds Light On Interpretability, sec. 2; Brunner et al. 2020",
    needs=("values",),
    signed=True,
    read=read,
)
