"""Effective attention: the part of the weights that reaches the head's output (Sun & Marasović 2021)."""

from __future__ import annotations

from typing import Any

from ..core.attention import Layer, Reading
from ._factors import effective_factors
from ._gate import require_open
from ._rows import effective_rows
from ._rowspace import project
from .base import Factoring, Lens


def read(layer: Layer, params: Any) -> Reading:
    """Return the weights minus their projection on the left null space of the values, {x : x V = 0}. [H, Q, K], signed.

    For n keys and head width D the null space has n - rank dimensions, so up to D keys the map is the weights themselves (if the values have full
    row rank). A query that sees only some keys is projected with the values of those keys alone.
    """
    require_open(layer)
    return project(layer.weights, layer.values, layer.output, layer.keys, layer.epsilon)


EFFECTIVE = Lens(
    name="effective",
    title="Effective attention",
    doc="The part of the weights that reaches the head's output. The part in the null space of the value vectors has no effect at all and is removed.",
    not_="Not the only matrix with that output, but the one of smallest norm. It considers one head alone, before the output projection and the residual stream; "
    "rows need not sum to 1, and entries can be negative.",
    citation="Sun & Marasović 2021, Effective Attention Sheds Light On Interpretability, sec. 2; Brunner et al. 2020",
    needs=("values",),
    signed=True,
    phrases={"": ("effective",)},
    read=read,
    factoring=Factoring(effective_factors, effective_rows),
)
