"""Plotly figures of a study, named after what they show in the papers they are from. One family per module."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from ...errors import InvalidRequest, Unknown
from ...studies.results.summary import StudySummary
from ...studies.results.table_files import ResultTable
from ...studies.results.tables import TABLES
from .effects import EFFECTS
from .figure import StudyFigure
from .head_entropy import HEAD_ENTROPY
from .head_grids import HEAD_METRICS, SPECIAL_MAPS, TUNING
from .lens_cost import LENS_COST
from .lines import MIXING_RATIO, NORMS, RESIDUAL_RATIO
from .maps import LENS_PAIR, PATTERN_GRID
from .scores import SCORES_FIGURE
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
        EFFECTS,
        SCORES_FIGURE,
    )
}


def find_figure(name: str) -> StudyFigure:
    """Return a figure by name. Raises Unknown."""
    if name not in STUDY_FIGURES:
        raise Unknown("figure", f"Unknown study figure. Available: {', '.join(STUDY_FIGURES)}.", pointer="/figure")
    return STUDY_FIGURES[name]


def build_table(study: StudySummary, name: str, params: Mapping[str, Any] | None = None) -> ResultTable:
    """Return a table; `params` are those of the figure with the same name. Raises Unknown, InvalidRequest, and what the figure raises."""
    if name in TABLES:
        if params:
            raise InvalidRequest("This table has no parameters.")
        return TABLES[name](study)
    if name not in STUDY_FIGURES:
        raise Unknown("table", f"Unknown table. Available: {', '.join([*TABLES, *STUDY_FIGURES])}.", pointer="/table")
    figure = STUDY_FIGURES[name]
    try:
        checked = figure.params.model_validate(params or {})
    except ValidationError as error:
        raise InvalidRequest(f"Invalid parameter of the figure: {error.errors()[0]['msg']}.") from None
    drawing = figure.build(study, checked)
    return ResultTable(name, f"{figure.title}. {figure.citation}", drawing.columns, drawing.rows)


__all__ = ["STUDY_FIGURES", "StudyFigure", "build_table", "find_figure"]
