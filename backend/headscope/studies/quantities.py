"""The numbers that a study keeps of every input: measures of its maps, effects of heads on a prediction, and scores of lenses."""

from __future__ import annotations

from ..core.declarations import Quantity
from ..effects.quantities import EFFECT_QUANTITIES
from ..measures import MEASURES
from .scores import COLUMNS

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
QUANTITIES: dict[str, Quantity] = {**MEASURES, **EFFECT_QUANTITIES, SCORES.name: SCORES}
