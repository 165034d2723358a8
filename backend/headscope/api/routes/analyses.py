"""Routes: ask for analyses, follow them, cancel them."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.responses import JSONResponse

from ...analysis.request import AnalysisRequest
from ...errors import HeadscopeError, ModelUnavailable, QueueFull, Unknown
from ...jobs import Job
from ...server.service import Service
from ...store import Stored
from ...store.map_file import Corrupt
from ..dependencies import AnalysisId, ServiceDep, VisitorDep
from ..documents import analyses
from ..error_responses import media, raises
from ..http.negotiation import LastEvent, WaitSeconds, takes_gzip
from ..http.paging import TimeCursor, before
from ..middleware.reads import found
from ..schemas.analyses import AnalysisDocument, AnalysisItem, BatchAccepted, BatchInput, BatchRequest, Event, Page

router = APIRouter(prefix="/analyses", tags=["analyses"])

# Bytes of a document above which it travels compressed to whoever takes it so: that of 2,048 tokens is larger than all thumbnails.
LONG_DOCUMENT = 16 * 1024
ACCEPTS = raises(Unknown, ModelUnavailable, QueueFull)


@router.post(
    "", status_code=202, response_model=AnalysisDocument, responses={**ACCEPTS, 200: {"model": AnalysisDocument}}
)
async def create(
    body: AnalysisRequest, response: Response, service: ServiceDep, visitor: VisitorDep, seconds: WaitSeconds
) -> AnalysisDocument:
    """Ask for an analysis. 200 when it is stored already, or done within `Prefer: wait=N` seconds; 202 otherwise. The same request has the same id."""
    owner = visitor.owner
    _, (id_,) = await service.limiters.submissions.run(lambda: service.submit([body], owner=owner))
    if seconds and not await asyncio.to_thread(service.results.has, id_):
        await service.watcher.ended(id_, seconds)
        response.headers["Preference-Applied"] = f"wait={seconds:g}"
    try:
        document = await _document(service, id_)
    except Unknown:  # its result was removed meanwhile, by somebody of whom the index has not heard
        await service.limiters.submissions.run(lambda: service.submit([body], owner=owner))
        document = await _document(service, id_)
    response.headers["Location"] = f"{analyses.PREFIX}/{id_}"
    response.status_code = 202 if document.status in ("queued", "running") else 200
    return document


@router.post("/batch", status_code=202, responses=ACCEPTS)
async def create_batch(body: BatchRequest, service: ServiceDep, visitor: VisitorDep) -> BatchAccepted:
    """Ask for up to 1,000 analyses at once: all are accepted, or none."""
    owner = visitor.owner
    batch, ids = await service.limiters.submissions.run(
        lambda: service.submit(_batch_requests(body), batch=True, owner=owner)
    )
    return BatchAccepted(batch=batch or ids[0], ids=ids)


@router.get("")
async def recent(
    service: ServiceDep,
    visitor: VisitorDep,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    cursor: TimeCursor = None,
) -> Page[AnalysisItem]:
    """One's own analyses, the newest first."""
    jobs = await asyncio.to_thread(service.database.page, limit, before(cursor), visitor.owner)
    return Page(items=[analyses.item(job) for job in jobs], next=repr(jobs[-1].created) if len(jobs) == limit else None)


@router.get("/{id}", response_model=AnalysisDocument)
async def show(id_: AnalysisId, request: Request, service: ServiceDep) -> Response:
    """An analysis: how far it is, and when it is done tokens, shapes, summaries and links."""
    zipped = takes_gzip(request)

    def answer() -> Response:
        job, stored = service.find_or_recompute(id_)
        document = _described(service, id_, job, stored)
        shown, headers = document.model_dump_json().encode(), {"Vary": "Accept-Encoding"}
        if zipped and len(shown) > LONG_DOCUMENT:
            shown, headers = gzip.compress(shown, 1, mtime=0), headers | {"Content-Encoding": "gzip"}
        response = Response(shown, headers=headers, media_type="application/json")
        if stored is not None and document.status == "done":
            found(request, id_, stored, response)
        return response

    return await asyncio.to_thread(answer)


@router.delete(
    "/{id}", status_code=202, response_model=AnalysisDocument, responses={204: {"description": "It is forgotten."}}
)
async def delete(id_: AnalysisId, service: ServiceDep, visitor: VisitorDep) -> Response:
    """Cancel an analysis that has not ended (202); forget one that has (204). What other users asked for, too, goes on for them (204)."""
    if not await asyncio.to_thread(service.cancel, id_, visitor.owner):
        return Response(status_code=204)
    return JSONResponse((await _document(service, id_)).model_dump(mode="json"), 202)


@router.get("/{id}/events", responses=media("text/event-stream"), response_class=EventSourceResponse)
async def events(id_: AnalysisId, service: ServiceDep, after: LastEvent) -> EventSourceResponse:
    """Progress as server-sent events named `progress`; the last one has a terminal status. Resumes after `Last-Event-ID`."""
    await asyncio.to_thread(service.find_or_recompute, id_)
    return EventSourceResponse(_stream(service, id_, after), ping=15, send_timeout=30)


async def _stream(service: Service, id_: str, after: int) -> AsyncIterator[ServerSentEvent]:
    seen = False
    async for job in service.watcher.changes(id_, after):
        seen = True
        position = await asyncio.to_thread(service.queue_position, job)
        yield ServerSentEvent(analyses.event(job, position).model_dump_json(), event="progress", id=str(job.version))
    if not seen:  # only the result is left, or everything was sent before
        document = await _document(service, id_)
        last = Event(**document.model_dump(include=set(Event.model_fields)))
        yield ServerSentEvent(last.model_dump_json(), event="progress", id=str(after))


def _described(service: Service, id_: str, job: Job | None, stored: Stored | None) -> AnalysisDocument:
    try:
        position = service.queue_position(job) if job else None
        return analyses.analysis(id_, job, stored, position)
    except Corrupt:  # found only now, in what the manifest names
        service.recompute(id_)
        return analyses.analysis(id_, service.database.get(id_), None)


async def _document(service: Service, id_: str) -> AnalysisDocument:
    return await asyncio.to_thread(lambda: _described(service, id_, *service.find_or_recompute(id_)))


def _batch_requests(body: Any) -> list[AnalysisRequest]:
    shared = body.model_dump(exclude={"inputs"})
    requests = []
    for place, entry in enumerate(body.inputs):
        try:
            requests.append(AnalysisRequest.model_validate({**shared, **entry.model_dump()}))
        except HeadscopeError as error:
            if error.pointer is not None and error.pointer[1:] in BatchInput.model_fields:
                error.pointer = f"/inputs/{place}{error.pointer}"
            raise
    return requests
