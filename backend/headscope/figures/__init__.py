"""Figures of an analysis, as plotly draws them. One family per file, one line per figure here; drawing needs numpy only."""

from __future__ import annotations

from ..errors import Unknown
from .entropy import ENTROPY
from .figure import Drawing, Figure, Held, Numbers
from .paper import Theme
from .patterns import PATTERN_SHARES
from .rank import RANK
from .residual import RESIDUAL_RATIO
from .similarity import TOKEN_SIMILARITY
from .spectrum import SPECTRUM
from .token_types import TOKEN_TYPES

FIGURES: dict[str, Figure] = {
    figure.name: figure
    for figure in (ENTROPY, TOKEN_SIMILARITY, RESIDUAL_RATIO, RANK, PATTERN_SHARES, TOKEN_TYPES, SPECTRUM)
}


def named(name: str) -> Figure:
    """The figure of that name. Raises Unknown."""
    if name not in FIGURES:
        raise Unknown("figure", f"There is no such figure. There are: {', '.join(FIGURES)}.", pointer="/figure")
    return FIGURES[name]


__all__ = ["FIGURES", "Drawing", "Figure", "Held", "Numbers", "Theme", "named"]
