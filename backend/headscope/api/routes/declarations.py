"""Routes that list lenses, mechanisms, measures, methods for effects, batteries, and figures."""

from __future__ import annotations

from fastapi import APIRouter

from ...batteries import BATTERIES
from ...effects import EFFECTS
from ...figures import FIGURES
from ...figures.studies import STUDY_FIGURES
from ...lenses import LENSES
from ...measures import MEASURES
from ...mechanisms import MECHANISMS
from ..http.compression import CompressedRoute
from ..http.paging import Cursor, Limit, paginate
from ..schemas.common import Page
from ..schemas.methods import (
    BatterySchema,
    DeclarationSchema,
    EffectMethodSchema,
    FigureSchema,
    LensSchema,
    MeasureSchema,
    describe,
)

router = APIRouter(tags=["what there is"], route_class=CompressedRoute)


@router.get("/lenses")
def lenses(limit: Limit = 100, cursor: Cursor = 0) -> Page[LensSchema]:
    """List the lenses: the ways to read attention."""
    return paginate(describe(LENSES, LensSchema), limit, cursor)


@router.get("/mechanisms")
def mechanisms(limit: Limit = 100, cursor: Cursor = 0) -> Page[DeclarationSchema]:
    """List the mechanisms: the ways a model can attend."""
    return paginate(describe(MECHANISMS, DeclarationSchema), limit, cursor)


@router.get("/measures")
def measures(limit: Limit = 100, cursor: Cursor = 0) -> Page[MeasureSchema]:
    """List the measures: the numbers that can be computed from maps."""
    return paginate(describe(MEASURES, MeasureSchema), limit, cursor)


@router.get("/effects")
def effects(limit: Limit = 100, cursor: Cursor = 0) -> Page[EffectMethodSchema]:
    """List the methods for effects: the ways to tell what heads do to a prediction."""
    return paginate(describe(EFFECTS, EffectMethodSchema), limit, cursor)


@router.get("/batteries")
def batteries(limit: Limit = 100, cursor: Cursor = 0) -> Page[BatterySchema]:
    """List the batteries: the tests of what heads are for."""
    described = [BatterySchema.model_validate(one, from_attributes=True, by_name=True) for one in BATTERIES.values()]
    return paginate(described, limit, cursor)


@router.get("/figures")
def figures(limit: Limit = 100, cursor: Cursor = 0) -> Page[FigureSchema]:
    """List the figures of analyses and of studies."""
    described = describe(FIGURES, FigureSchema, of="analysis") + describe(STUDY_FIGURES, FigureSchema, of="study")
    return paginate(described, limit, cursor)
