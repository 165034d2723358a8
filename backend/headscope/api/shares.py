"""Routes: let somebody without a token read one analysis, and take that back."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from fastapi import APIRouter, Response

from ..jobs.job import LOCAL
from ..store.mapfile import Corrupt
from .deps import AnalysisId, ServiceDep, VisitorDep
from .schemas import Strict

router = APIRouter(prefix="/analyses/{id}/share", tags=["users"])


class Share(Strict):
    """A share key, and the address of the page that opens with it."""

    key: str
    link: str


@router.post("", status_code=201)
async def share(id_: AnalysisId, service: ServiceDep, visitor: VisitorDep) -> Share:
    """A key with which anybody may read this analysis and nothing else: `?share=KEY` on every call that reads it. The same key each time."""

    def made() -> str:
        with suppress(Corrupt):  # it is there, and is computed again when it is read
            service.find(id_)
        return service.record.share(id_, visitor.owner or LOCAL)

    key = await asyncio.to_thread(made)
    return Share(key=key, link=f"/#analysis={id_}&share={key}")


@router.delete("", status_code=204)
async def unshare(id_: AnalysisId, service: ServiceDep, visitor: VisitorDep) -> Response:
    """Take the key back; it opens nothing any more. Other users who asked for the same analysis have keys of their own."""
    await asyncio.to_thread(service.record.unshare, id_, visitor.owner or LOCAL)
    return Response(status_code=204)
