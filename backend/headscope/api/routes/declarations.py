"""Routes that list models, lenses, mechanisms and measures."""

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
from ..http.paging import Cursor, Limit, paginate
from ..schemas.common import Page
from ..schemas.methods import DeclarationSchema, LensSchema, MeasureSchema, describe
from ..schemas.models import KindDetail, ModelCard, ModelDetail, Support

router = APIRouter(tags=["what there is"])

KINDS: tuple[Kind, ...] = ("self", "encoder", "decoder", "cross")
METHODS: dict[str, Mapping[str, Declaration]] = {"lenses": LENSES, "mechanisms": MECHANISMS, "measures": MEASURES}


@router.get("/models")
def models(service: ServiceDep, limit: Limit = 100, cursor: Cursor = 0) -> Page[ModelCard]:
    """List the available models."""
    names = paginate(service.catalog.names(), limit, cursor)
    return Page(items=[ModelCard(**service.catalog.describe(name)) for name in names.items], next=names.next)


@router.get("/models/{model:path}")
def model(model: str, service: ServiceDep) -> ModelDetail:
    """Return a model and the methods that it supports."""
    card = service.catalog.describe(model)
    facts = service.catalog.facts(service.catalog.locate(model, pointer=None)) if card["available"] else None
    kinds = [_describe_kind(facts, kind) for kind in KINDS if kind in facts.kinds] if facts else []
    methods = (
        {name: getattr(kinds[0], name) for name in METHODS}
        if kinds
        else {name: _check_support(known, {}, card["reason"]) for name, known in METHODS.items()}
    )
    return ModelDetail(**card, **methods, kinds=kinds)


def _describe_kind(facts: Facts, kind: Kind) -> KindDetail:
    tower, missing = facts.tower(kind), support.find_missing(facts, kind)
    return KindDetail(
        kind=kind,
        layers=tower.layers,
        heads=tower.heads,
        head_width=tower.head_width,
        max_tokens=tower.max_tokens,
        **{name: _check_support(known, missing, None) for name, known in METHODS.items()},
    )


def _check_support(
    known: Mapping[str, Declaration], missing: Mapping[str, str], unavailable: str | None
) -> list[Support]:
    """Return whether each method is supported; `unavailable` is the reason if none is."""
    reasons = {name: unavailable or explain_missing(method, missing) for name, method in known.items()}
    return [Support(name=name, supported=reason is None, reason=reason) for name, reason in reasons.items()]


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
