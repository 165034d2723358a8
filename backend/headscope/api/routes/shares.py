"""Routes: let somebody without a token read one analysis or one study, and take that back."""

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
from ..schemas.analyses import Strict

router = APIRouter(tags=["users"])

# Where the page opens what a key opens.
PAGES = {"analysis": "/#analysis", "study": "/?studies#study"}


class Share(Strict):
    """A share key, and the address of the page that opens with it."""

    key: str
    link: str


@router.post("/analyses/{id}/share", status_code=201)
async def share(id_: AnalysisId, service: ServiceDep, visitor: VisitorDep) -> Share:
    """A key with which anybody may read this analysis and nothing else: `?share=KEY` on every call that reads it. The same key each time."""
    return await _shared(service, visitor, id_, "analysis")


@router.delete("/analyses/{id}/share", status_code=204)
async def unshare(id_: AnalysisId, service: ServiceDep, visitor: VisitorDep) -> Response:
    """Take the key back; it opens nothing any more. Other users who asked for the same analysis have keys of their own."""
    return await _unshared(service, visitor, id_)


@router.post("/studies/{id}/share", status_code=201)
async def share_study(id_: StudyId, service: ServiceDep, visitor: VisitorDep) -> Share:
    """A key with which anybody may read this study and nothing else, with the texts that it names: `?share=KEY` on every call that reads it. The same key each time."""
    return await _shared(service, visitor, id_, "study")


@router.delete("/studies/{id}/share", status_code=204)
async def unshare_study(id_: StudyId, service: ServiceDep, visitor: VisitorDep) -> Response:
    """Take the key back; it opens nothing any more. Other users who asked for the same study have keys of their own."""
    return await _unshared(service, visitor, id_)


async def _shared(service: Service, visitor: Visitor, id_: str, kind: JobKind) -> Share:
    def made() -> str:
        with suppress(Corrupt):  # it is there, and is computed again when it is read
            service.find(id_, kind)
        return service.database.share(id_, visitor.owner or LOCAL)

    key = await asyncio.to_thread(made)
    return Share(key=key, link=f"{PAGES[kind]}={id_}&share={key}")


async def _unshared(service: Service, visitor: Visitor, id_: str) -> Response:
    await asyncio.to_thread(service.database.unshare, id_, visitor.owner or LOCAL)
    return Response(status_code=204)
