"""The declarations of lenses, mechanisms, measures and figures as schemas."""

from __future__ import annotations

from ...figures import FIGURES
from ...figures.studies import STUDY_FIGURES
from ...lenses import LENSES
from ...measures import MEASURES
from ...mechanisms import MECHANISMS
from ..schemas.methods import DeclarationSchema, FigureSchema, LensSchema, MeasureSchema


def describe_lenses() -> list[LensSchema]:
    """Describe every lens."""
    return [LensSchema.model_validate(lens.describe()) for lens in LENSES.values()]


def describe_mechanisms() -> list[DeclarationSchema]:
    """Describe every mechanism."""
    return [DeclarationSchema.model_validate(mechanism.describe()) for mechanism in MECHANISMS.values()]


def describe_measures() -> list[MeasureSchema]:
    """Describe every measure."""
    return [MeasureSchema.model_validate(measure.describe()) for measure in MEASURES.values()]


def describe_figures() -> list[FigureSchema]:
    """Describe every figure of analyses, then every figure of studies."""
    return [
        FigureSchema.model_validate({**figure.describe(), "of": of})
        for of, figures in (("analysis", FIGURES.values()), ("study", STUDY_FIGURES.values()))
        for figure in figures
    ]
