"""The numbers that a study keeps of every input: measures of its maps, effects of heads on a prediction, and scores of lenses."""

from __future__ import annotations

from ..core.declarations import Quantity
from ..effects import EFFECTS
from ..effects.base import EffectMethod
from ..measures import MEASURES
from .scores import COLUMNS

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


SCORES = Quantity(
    name="right_key",
    title="Entry of the right key",
    doc="How often the largest entry of a row is on the key that labels mark as right.",
    not_="Not what the model uses: the labels say where a person would look.",
    citation="Headscope's page about scores",
    range=(0.0, 1.0),
    shape="L H C",
    columns=COLUMNS,
)
QUANTITIES: dict[str, Quantity] = {
    **MEASURES,
    **{name: _quantity(method) for name, method in JUDGES.items()},
    SCORES.name: SCORES,
}
