"""Routes of analyses: submit, list, show, follow, cancel."""

from __future__ import annotations

import asyncio
import gzip
from typing import Any

from fastapi import APIRouter, Request, Response
from sse_starlette import EventSourceResponse

from ...analysis.request import AnalysisRequest
from ...errors import HeadscopeError, ModelUnavailable, QueueFull, Unknown
from ...jobs import Job
from ...server.service import Service
from ...store import Stored
from ...store.map_file import Corrupt
from ..dependencies import AnalysisId, ServiceDep, VisitorDep
from ..documents import analyses as documents
from ..error_responses import media, raises
from ..http.negotiation import LastEvent, WaitSeconds, accepts_gzip
from ..http.paging import JobLimit, TimeCursor
from ..middleware.reads import record_read
from ..schemas.analyses import AnalysisDocument, AnalysisItem, BatchAccepted, BatchInput, BatchRequest, Event
from ..schemas.common import Page
from .jobs import JobRoutes

router = APIRouter(prefix="/analyses", tags=["analyses"])

# Larger documents are compressed: that of 2,048 tokens is larger than all thumbnails.
LARGE_DOCUMENT = 16 * 1024
ACCEPTS = raises(Unknown, ModelUnavailable, QueueFull)


@router.post(
    "", status_code=202, response_model=AnalysisDocument, responses={**ACCEPTS, 200: {"model": AnalysisDocument}}
)
async def create(
    body: AnalysisRequest, response: Response, service: ServiceDep, visitor: VisitorDep, seconds: WaitSeconds
) -> AnalysisDocument:
    """Submit an analysis. The status is 200 if its result is stored or ready within `Prefer: wait=N` seconds, and 202 otherwise. Identical requests have the same id."""
    owner = visitor.owner

    async def enqueue() -> str:
        _, (id_,) = await service.limiters.submissions.run(lambda: service.submit([body], owner=owner))
        return id_

    return await ROUTES.submit(service, response, seconds, enqueue)


@router.post("/batch", status_code=202, responses=ACCEPTS)
async def create_batch(body: BatchRequest, service: ServiceDep, visitor: VisitorDep) -> BatchAccepted:
    """Submit up to 1,000 analyses at once. Either all are accepted or none."""
    owner = visitor.owner
    batch, ids = await service.limiters.submissions.run(
        lambda: service.submit(_split_batch(body), batch=True, owner=owner)
    )
    return BatchAccepted(batch=batch or ids[0], ids=ids)


@router.get("")
async def recent(
    service: ServiceDep, visitor: VisitorDep, limit: JobLimit = 50, cursor: TimeCursor = None
) -> Page[AnalysisItem]:
    """List your analyses, newest first."""
    return await ROUTES.list_page(service, visitor, limit, cursor)


@router.get("/{id}", response_model=AnalysisDocument)
async def show(id_: AnalysisId, request: Request, service: ServiceDep) -> Response:
    """Return an analysis: its progress and, once it is done, tokens, shapes, summaries and links."""
    zipped = accepts_gzip(request)

    def respond() -> Response:
        job, stored = service.find_or_recompute(id_)
        document = _describe(service, id_, job, stored)
        body, headers = document.model_dump_json().encode(), {"Vary": "Accept-Encoding"}
        if zipped and len(body) > LARGE_DOCUMENT:
            body, headers = gzip.compress(body, 1, mtime=0), headers | {"Content-Encoding": "gzip"}
        response = Response(body, headers=headers, media_type="application/json")
        if stored is not None and document.status == "done":
            record_read(request, id_, stored, response)
        return response

    return await asyncio.to_thread(respond)


@router.delete(
    "/{id}", status_code=202, response_model=AnalysisDocument, responses={204: {"description": "It was deleted."}}
)
async def delete(id_: AnalysisId, service: ServiceDep, visitor: VisitorDep) -> Response:
    """Cancel a queued or running analysis (202), or delete an ended one (204). An analysis that other users also requested is only removed for you (204)."""
    return await ROUTES.cancel(service, visitor, id_)


@router.get("/{id}/events", responses=media("text/event-stream"), response_class=EventSourceResponse)
async def events(id_: AnalysisId, service: ServiceDep, after: LastEvent) -> EventSourceResponse:
    """Stream progress as server-sent events named `progress`. The last one has a final status. Send `Last-Event-ID` to resume."""
    return await ROUTES.follow(service, id_, after)


def _describe(service: Service, id_: str, job: Job | None, stored: Stored | None) -> AnalysisDocument:
    try:
        return documents.to_document(id_, job, stored, service.queue_position(job) if job else None)
    except Corrupt:  # in a file that is only read for the document
        service.recompute(id_)
        return documents.to_document(id_, service.database.get(id_), None)


def _split_batch(body: Any) -> list[AnalysisRequest]:
    """Return the requests of a batch. The pointer of an error names the input."""
    shared = body.model_dump(exclude={"inputs"})
    requests = []
    for position, entry in enumerate(body.inputs):
        try:
            requests.append(AnalysisRequest.model_validate({**shared, **entry.model_dump()}))
        except HeadscopeError as error:
            if error.pointer is not None and error.pointer[1:] in BatchInput.model_fields:
                error.pointer = f"/inputs/{position}{error.pointer}"
            raise
    return requests


ROUTES = JobRoutes[AnalysisDocument, AnalysisItem](
    kind="analysis",
    prefix=documents.PREFIX,
    event=Event,
    to_document=lambda service, id_: _describe(service, id_, *service.find_or_recompute(id_)),
    to_item=lambda _, job: documents.to_item(job),
    to_event=lambda service, job: documents.to_event(job, service.queue_position(job)),
)
