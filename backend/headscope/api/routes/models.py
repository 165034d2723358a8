"""Routes that list, download and remove models."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Response
from starlette.responses import JSONResponse

from ...analysis.request import explain_missing
from ...core.attention import Kind
from ...core.declarations import Declaration
from ...effects import EFFECTS
from ...errors import Forbidden, ModelUnavailable, QueueFull, Unknown
from ...lenses import LENSES
from ...measures import MEASURES
from ...mechanisms import MECHANISMS
from ...models import support
from ...models.facts import Facts
from ...server.service import Service
from ..dependencies import ServiceDep, VisitorDep
from ..error_responses import raises
from ..http.compression import CompressedRoute
from ..http.negotiation import WaitSeconds
from ..http.paging import Cursor, Limit, paginate
from ..middleware.access import Visitor
from ..middleware.metrics import PREFIX
from ..schemas.common import Page
from ..schemas.models import AddModel, Download, KindDetail, ModelCard, ModelDetail, Support

router = APIRouter(prefix="/models", tags=["models"], route_class=CompressedRoute)

KINDS: tuple[Kind, ...] = ("self", "encoder", "decoder", "cross")
METHODS: dict[str, Mapping[str, Declaration]] = {"lenses": LENSES, "mechanisms": MECHANISMS, "measures": MEASURES}
ADMINISTRATOR = "On a server with users, those who asked for a download cancel it, and only the administrator removes models: by deleting them from the hub's cache."


@router.get("")
def models(service: ServiceDep, visitor: VisitorDep, limit: Limit = 100, cursor: Cursor = 0) -> Page[ModelCard]:
    """List the available models."""
    names = paginate(service.catalog.listed(), limit, cursor)
    return Page(items=[ModelCard(**_card(service, visitor, name)) for name in names.items], next=names.next)


@router.post(
    "",
    status_code=202,
    response_model=ModelDetail,
    responses={**raises(Unknown, ModelUnavailable, QueueFull), 200: {"model": ModelDetail}},
)
async def add(
    body: AddModel, response: Response, service: ServiceDep, visitor: VisitorDep, seconds: WaitSeconds
) -> ModelDetail:
    """Download a model of the hub, if `HEADSCOPE_HUB` allows it.

    The status is 200 if it is on the server already, or within `Prefer: wait=N` seconds; otherwise it is 202, and the model's own document shows the progress.
    """
    owner = visitor.owner
    id_ = await asyncio.to_thread(service.downloads.submit, body.model, owner)
    if id_ and seconds:
        await service.downloads.ended(id_, seconds)
        response.headers["Preference-Applied"] = f"wait={seconds:g}"
    document = await asyncio.to_thread(_describe, service, visitor, body.model)
    response.headers["Location"] = f"{PREFIX}/models/{body.model}"
    response.status_code = 200 if document.local else 202
    return document


@router.get("/{model:path}")
def model(model: str, service: ServiceDep, visitor: VisitorDep) -> ModelDetail:
    """Return a model, the methods that it supports, and the progress of its download."""
    return _describe(service, visitor, model)


@router.delete(
    "/{model:path}",
    status_code=202,
    response_model=ModelDetail,
    responses={**raises(Unknown, Forbidden), 204: {"description": "It was removed."}},
)
async def remove(model: str, service: ServiceDep, visitor: VisitorDep) -> Response:
    """Cancel the download of a model or forget that it failed (202), or remove the model from the hub's cache (204), which a server with users leaves to its administrator."""
    owner = visitor.owner
    if await asyncio.to_thread(service.downloads.cancel, model, owner):
        document = await asyncio.to_thread(_describe, service, visitor, model)
        return JSONResponse(document.model_dump(mode="json"), 202)
    if not visitor.everything:
        raise Forbidden(ADMINISTRATOR)
    await asyncio.to_thread(service.downloads.remove, model)
    return Response(status_code=204)


def _describe(service: Service, visitor: Visitor, model: str) -> ModelDetail:
    card = _card(service, visitor, model)
    located = service.catalog.locate(model, pointer=None)
    facts = service.catalog.facts(located) if card["available"] else None
    kinds = [_describe_kind(facts, kind, located.local) for kind in KINDS if kind in facts.kinds] if facts else []
    methods = (
        {name: getattr(kinds[0], name) for name in METHODS}
        if kinds
        else {
            name: [_support(method, {}, card["reason"]) for method in known.values()] for name, known in METHODS.items()
        }
    )
    job = service.downloads.find(located)
    download = job and Download(status=job.status, fraction=job.fraction, detail=job.detail, error=job.error)
    return ModelDetail(**card, **methods, kinds=kinds, download=download)


def _card(service: Service, visitor: Visitor, name: str) -> dict[str, Any]:
    """Return what is known about a model, and whether this visitor may remove it."""
    card = service.catalog.describe(name)
    return {**card, "removable": card["removable"] and visitor.everything}


def _describe_kind(facts: Facts, kind: Kind, local: bool) -> KindDetail:
    tower, missing = facts.tower(kind), support.find_missing(facts, kind)
    return KindDetail(
        kind=kind,
        layers=tower.layers,
        heads=tower.heads,
        head_width=tower.head_width,
        max_tokens=tower.max_tokens,
        **{name: [_support(method, missing) for method in known.values()] for name, known in METHODS.items()},
        effects=[
            _support(method, missing, support.explain_silence(facts, kind, method.of) if local else None)
            for method in EFFECTS.values()
        ],
    )


def _support(method: Declaration, missing: Mapping[str, str], unavailable: str | None = None) -> Support:
    """Return whether a method is supported; `unavailable` is the reason if no method is."""
    reason = unavailable or explain_missing(method, missing)
    return Support(name=method.name, supported=reason is None, reason=reason)
