"""Plotly figures of a study, named after what they show in the papers they are from. One family per module."""

from __future__ import annotations

from ...errors import Unknown
from .figure import StudyFigure
from .head_entropy import HEAD_ENTROPY
from .head_grids import HEAD_METRICS, SPECIAL_MAPS, TUNING
from .lens_cost import LENS_COST
from .lines import MIXING_RATIO, NORMS, RESIDUAL_RATIO
from .maps import LENS_PAIR, PATTERN_GRID
from .shares import CONNECTIONS, PATTERN_SHARES
from .token_types import TOKEN_TYPES
from .violins import ENTROPY, TOKEN_SIMILARITY

STUDY_FIGURES: dict[str, StudyFigure] = {
    figure.name: figure
    for figure in (
        PATTERN_SHARES,
        TOKEN_TYPES,
        LENS_PAIR,
        TUNING,
        SPECIAL_MAPS,
        LENS_COST,
        CONNECTIONS,
        RESIDUAL_RATIO,
        TOKEN_SIMILARITY,
        ENTROPY,
        PATTERN_GRID,
        NORMS,
        MIXING_RATIO,
        HEAD_ENTROPY,
        HEAD_METRICS,
    )
}


def find_figure(name: str) -> StudyFigure:
    """Return a figure by name. Raises Unknown."""
    if name not in STUDY_FIGURES:
        raise Unknown("figure", f"Unknown study figure. Available: {', '.join(STUDY_FIGURES)}.", pointer="/figure")
    return STUDY_FIGURES[name]


__all__ = ["STUDY_FIGURES", "StudyFigure", "find_figure"]
