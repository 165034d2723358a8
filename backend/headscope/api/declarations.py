"""Routes: what models, lenses, mechanisms and measures there are."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from ..lenses import LENSES
from ..measures import MEASURES
from ..mechanisms import MECHANISMS
from .deps import ServiceDep
from .schemas import DeclarationSchema, LensSchema, MeasureSchema, ModelCard, ModelDetail, Page, Support

router = APIRouter(tags=["what there is"])

Limit = Annotated[int, Query(ge=1, le=1000, description="Most items of a page.")]
Cursor = Annotated[int, Query(ge=0, le=1_000_000, description="`next` of the page before.")]


@router.get("/models")
def models(service: ServiceDep, limit: Limit = 100, cursor: Cursor = 0) -> Page[ModelCard]:
    """The models on offer."""
    names = service.catalog.names()
    items = [ModelCard(**service.catalog.describe(name)) for name in names[cursor : cursor + limit]]
    return Page(items=items, next=str(cursor + limit) if cursor + limit < len(names) else None)


@router.get("/models/{model:path}")
def model(model: str, service: ServiceDep) -> ModelDetail:
    """One model, and what can be done with it."""
    card = service.catalog.describe(model)
    reason = card["reason"]

    def supports(names: dict[str, object]) -> list[Support]:
        return [Support(name=name, supported=card["available"], reason=reason) for name in names]

    return ModelDetail(**card, lenses=supports(dict(LENSES)), mechanisms=supports(dict(MECHANISMS)))


@router.get("/lenses")
def lenses() -> Page[LensSchema]:
    """How attention can be read."""
    return Page(items=[LensSchema.model_validate(lens.describe()) for lens in LENSES.values()])


@router.get("/mechanisms")
def mechanisms() -> Page[DeclarationSchema]:
    """How a model can be made to attend."""
    return Page(items=[DeclarationSchema.model_validate(mechanism.describe()) for mechanism in MECHANISMS.values()])


@router.get("/measures")
def measures() -> Page[MeasureSchema]:
    """What can be computed from maps."""
    return Page(items=[MeasureSchema.model_validate(measure.describe()) for measure in MEASURES.values()])
