"""Routes: what models, lenses, mechanisms and measures there are."""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import APIRouter

from ...analysis.request import explain_missing
from ...core.attention import Kind
from ...core.declarations import Declaration
from ...lenses import LENSES
from ...measures import MEASURES
from ...mechanisms import MECHANISMS
from ...models import support
from ...models.facts import Facts
from ..dependencies import ServiceDep
from ..http.paging import Cursor, Limit, page
from ..schemas.analyses import (
    DeclarationSchema,
    KindDetail,
    LensSchema,
    MeasureSchema,
    ModelCard,
    ModelDetail,
    Page,
    Support,
)

router = APIRouter(tags=["what there is"])

KINDS: tuple[Kind, ...] = ("self", "encoder", "decoder", "cross")
METHODS: dict[str, Mapping[str, Declaration]] = {"lenses": LENSES, "mechanisms": MECHANISMS, "measures": MEASURES}


@router.get("/models")
def models(service: ServiceDep, limit: Limit = 100, cursor: Cursor = 0) -> Page[ModelCard]:
    """The models on offer."""
    names = page(service.catalog.names(), limit, cursor)
    return Page(items=[ModelCard(**service.catalog.describe(name)) for name in names.items], next=names.next)


@router.get("/models/{model:path}")
def model(model: str, service: ServiceDep) -> ModelDetail:
    """One model, and what can be done with it."""
    card = service.catalog.describe(model)
    facts = service.catalog.facts(service.catalog.locate(model, pointer=None)) if card["available"] else None
    kinds = [_kind(facts, kind) for kind in KINDS if kind in facts.kinds] if facts else []
    first = kinds[0] if kinds else None
    whole = {
        name: getattr(first, name) if first else _supports(known, {}, card["reason"]) for name, known in METHODS.items()
    }
    return ModelDetail(**card, **whole, kinds=kinds)


def _kind(facts: Facts, kind: Kind) -> KindDetail:
    tower, missing = facts.tower(kind), support.find_missing(facts, kind)
    return KindDetail(
        kind=kind,
        layers=tower.layers,
        heads=tower.heads,
        head_width=tower.head_width,
        max_tokens=tower.max_tokens,
        **{name: _supports(known, missing, None) for name, known in METHODS.items()},
    )


def _supports(known: Mapping[str, Declaration], missing: Mapping[str, str], unavailable: str | None) -> list[Support]:
    """Of every method whether it works; `unavailable` is why nothing does."""
    reasons = {name: unavailable or explain_missing(method, missing) for name, method in known.items()}
    return [Support(name=name, supported=reason is None, reason=reason) for name, reason in reasons.items()]


@router.get("/lenses")
def lenses(limit: Limit = 100, cursor: Cursor = 0) -> Page[LensSchema]:
    """How attention can be read."""
    return page([LensSchema.model_validate(lens.describe()) for lens in LENSES.values()], limit, cursor)


@router.get("/mechanisms")
def mechanisms(limit: Limit = 100, cursor: Cursor = 0) -> Page[DeclarationSchema]:
    """How a model can be made to attend."""
    described = [DeclarationSchema.model_validate(mechanism.describe()) for mechanism in MECHANISMS.values()]
    return page(described, limit, cursor)


@router.get("/measures")
def measures(limit: Limit = 100, cursor: Cursor = 0) -> Page[MeasureSchema]:
    """What can be computed from maps."""
    return page([MeasureSchema.model_validate(measure.describe()) for measure in MEASURES.values()], limit, cursor)
