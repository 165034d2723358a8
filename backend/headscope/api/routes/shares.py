"""Routes of share keys, which let people without a token read one analysis or study."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from fastapi import APIRouter, Response

from ...jobs import JobKind
from ...jobs.job import LOCAL
from ...server.service import Service
from ...store.map_file import Corrupt
from ..dependencies import AnalysisId, ServiceDep, StudyId, VisitorDep
from ..middleware.access import Visitor
from ..schemas.server import Share

router = APIRouter(tags=["users"])

# The page's URL for an analysis or study, before its id.
PAGES = {"analysis": "/#analysis", "study": "/?studies#study"}


@router.post("/analyses/{id}/share", status_code=201)
async def share(id_: AnalysisId, service: ServiceDep, visitor: VisitorDep) -> Share:
    """Create a key that grants read access to this analysis only. Add `?share=KEY` to requests that read it. Repeated calls return the same key."""
    return await _create_key(service, visitor, id_, "analysis")


@router.delete("/analyses/{id}/share", status_code=204)
async def unshare(id_: AnalysisId, service: ServiceDep, visitor: VisitorDep) -> Response:
    """Revoke your share key of this analysis. Keys of other users who requested the same analysis stay valid."""
    return await _revoke_key(service, visitor, id_)


@router.post("/studies/{id}/share", status_code=201)
async def share_study(id_: StudyId, service: ServiceDep, visitor: VisitorDep) -> Share:
    """Create a key that grants read access to this study only, including the texts that it shows. Add `?share=KEY` to requests that read it. Repeated calls return the same key."""
    return await _create_key(service, visitor, id_, "study")


@router.delete("/studies/{id}/share", status_code=204)
async def unshare_study(id_: StudyId, service: ServiceDep, visitor: VisitorDep) -> Response:
    """Revoke your share key of this study. Keys of other users who requested the same study stay valid."""
    return await _revoke_key(service, visitor, id_)


async def _create_key(service: Service, visitor: Visitor, id_: str, kind: JobKind) -> Share:
    def create() -> str:
        with suppress(Corrupt):  # it exists, and is computed again when it is read
            service.find(id_, kind)
        return service.database.share(id_, visitor.owner or LOCAL)

    key = await asyncio.to_thread(create)
    return Share(key=key, link=f"{PAGES[kind]}={id_}&share={key}")


async def _revoke_key(service: Service, visitor: Visitor, id_: str) -> Response:
    await asyncio.to_thread(service.database.unshare, id_, visitor.owner or LOCAL)
    return Response(status_code=204)
