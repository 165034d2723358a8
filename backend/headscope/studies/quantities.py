"""The numbers that a study keeps of every input: measures of its maps, effects of heads on a prediction, and scores of lenses."""

from __future__ import annotations

from ..core.declarations import Quantity
from ..core.right_key import SCORES
from ..effects.quantities import EFFECT_QUANTITIES
from ..measures import MEASURES

QUANTITIES: dict[str, Quantity] = {**MEASURES, **EFFECT_QUANTITIES, SCORES.name: SCORES}
