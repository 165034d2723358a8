"""Plotly figures of an analysis, one family per module. Drawing needs numpy only."""

from __future__ import annotations

from ..errors import Unknown
from .entropy import ENTROPY
from .figure import Drawing, Figure, FigureData
from .hidden import RESIDUAL_RATIO, TOKEN_SIMILARITY
from .patterns import PATTERN_SHARES
from .rank import RANK
from .spectrum import SPECTRUM
from .theme import Theme
from .token_types import TOKEN_TYPES

FIGURES: dict[str, Figure] = {
    figure.name: figure
    for figure in (ENTROPY, TOKEN_SIMILARITY, RESIDUAL_RATIO, RANK, PATTERN_SHARES, TOKEN_TYPES, SPECTRUM)
}


def find_figure(name: str) -> Figure:
    """Return a figure by name. Raises Unknown."""
    if name not in tuple(FIGURES):  # it may be a value that cannot be looked up
        raise Unknown("figure", f"Unknown figure. Available: {', '.join(FIGURES)}.", pointer="/figure")
    return FIGURES[name]


__all__ = ["FIGURES", "Drawing", "Figure", "FigureData", "Theme", "find_figure"]
