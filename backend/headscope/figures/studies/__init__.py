"""Figures of a study, as plotly draws them, each named after what it shows in the paper it is from. One family per file, one line per figure here."""

from __future__ import annotations

from ...errors import Unknown
from .cost import LENS_COST
from .figure import StudyFigure
from .heads import HEAD_ENTROPY, HEAD_METRICS
from .lines import MIXING_RATIO, NORMS, RESIDUAL_RATIO
from .maps import SPECIAL_MAPS, TUNING
from .shares import CONNECTIONS, PATTERN_SHARES
from .shown import LENS_PAIR, PATTERN_GRID
from .types import TOKEN_TYPES
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


def named(name: str) -> StudyFigure:
    """The figure of that name. Raises Unknown."""
    if name not in STUDY_FIGURES:
        raise Unknown("figure", f"There is no such figure. There are: {', '.join(STUDY_FIGURES)}.", pointer="/figure")
    return STUDY_FIGURES[name]


__all__ = ["STUDY_FIGURES", "StudyFigure", "named"]
