"""What studies keep of the effects of heads on a prediction, as numbers of heads."""

from __future__ import annotations

from ..core.declarations import Quantity
from . import EFFECTS
from .base import EffectMethod

# The columns of a method: the effect itself, and 1 where it is positive, 0 where it is not, so that its mean is the share of inputs where the head raises the target.
EFFECT_COLUMNS = ("effect", "raises")
# Methods that judge heads by a prediction: the others need a cell of one input.
JUDGES: dict[str, EffectMethod] = {name: method for name, method in EFFECTS.items() if method.of == "prediction"}


def _quantity(method: EffectMethod) -> Quantity:
    """Return the effects of all heads as numbers that a study keeps."""
    return Quantity(
        name=method.name,
        title=method.title,
        doc=method.doc,
        not_=method.not_,
        citation=method.citation,
        unit=method.unit,
        shape="L H C",
        columns=EFFECT_COLUMNS,
        units={"raises": "1"},
    )


EFFECT_QUANTITIES: dict[str, Quantity] = {name: _quantity(method) for name, method in JUDGES.items()}
