"""The pictures of the docs: one deterministic function each, named in the registry of its module.

They are drawn from MiniLM, from a small GPT, and from what is on record of the twins.
"""

from __future__ import annotations

from collections.abc import Callable

from . import answers, curves, effects, heads, hidden, layers, lenses, mechanisms, projections, rows, shares
from .figure import Figure

# Name of the file in docs/pictures without .svg -> the function that draws it.
PICTURES: dict[str, Callable[[], Figure]] = {
    **lenses.PICTURES,
    **layers.PICTURES,
    **mechanisms.PICTURES,
    **shares.PICTURES,
    **rows.PICTURES,
    **hidden.PICTURES,
    **projections.PICTURES,
    **heads.PICTURES,
    **curves.PICTURES,
    **answers.PICTURES,
    **effects.PICTURES,
}
