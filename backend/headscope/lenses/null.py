"""The part of the weights that has no effect: what effective attention removes."""

from __future__ import annotations

from typing import Any

from ..core.attention import Layer, Reading
from ._factors import null_factors
from ._gate import require_open
from ._rows import null_rows
from ._rowspace import project
from .base import Factoring, Lens


def read(layer: Layer, params: Any) -> Reading:
    """Return the weights minus effective attention, row by row: the projection on the left null space of the values. [H, Q, K], signed.

    All zeros where effective attention is the weights themselves. Rank and condition are those of the values.
    """
    require_open(layer)
    effective = project(layer.weights, layer.values, layer.output, layer.keys, layer.epsilon)
    return Reading(
        layer.weights - effective.map,
        signed=True,
        rank=effective.rank,
        condition=effective.condition,
        kept=None if effective.kept is None else 1 - effective.kept,
        leverage=None if effective.leverage is None else 1 - effective.leverage,
        span=effective.span,
    )


NULL = Lens(
    name="null",
    title="Null part",
    doc="The part of the weights that has no effect on the head's output at all: the weights minus effective attention.",
    not_="Not noise and not an error of the model: it has no effect because of this head's values, whatever the reason for the weights. "
    "It is zero while there are no more tokens than the head is wide.",
    citation="Projection on the left null space of V; Sun & Marasović 2021, Effective Attention Sheds Light On Interpretability, sec. 2",
    needs=("values",),
    shows="remainder",
    signed=True,
    read=read,
    factoring=Factoring(null_factors, null_rows, pairs=2, softmax=True),
)
