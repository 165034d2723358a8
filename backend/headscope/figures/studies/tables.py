"""Tables of a study by name: those of its own, and the numbers of its figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from ...errors import InvalidRequest, Unknown
from ...studies.results.summary import StudySummary
from ...studies.results.table_files import ResultTable
from ...studies.results.tables import TABLES
from . import STUDY_FIGURES


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
