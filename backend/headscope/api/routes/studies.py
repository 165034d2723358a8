"""Routes: ask for studies, follow them, cancel them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Query, Response
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.responses import JSONResponse

from ...errors import DatasetUnavailable, ModelUnavailable, QueueFull, Unknown
from ...jobs import ChunkState, Job
from ...server.service import Service
from ...studies.request import StudyRequest
from ..dependencies import ServiceDep, StudyId, VisitorDep
from ..documents import studies as documents
from ..error_responses import media, raises
from ..http.negotiation import LastEvent, WaitSeconds
from ..http.paging import TimeCursor, before
from ..schemas.analyses import Page
from ..schemas.studies import StudyDocument, StudyEvent, StudyItem

router = APIRouter(prefix="/studies", tags=["studies"])

ACCEPTS = raises(Unknown, ModelUnavailable, DatasetUnavailable, QueueFull)


@router.post("", status_code=202, response_model=StudyDocument, responses={**ACCEPTS, 200: {"model": StudyDocument}})
async def create(
    body: StudyRequest, response: Response, service: ServiceDep, visitor: VisitorDep, seconds: WaitSeconds
) -> StudyDocument:
    """Ask for a study. 200 when it is stored already, or done within `Prefer: wait=N` seconds; 202 otherwise. The same request about the same data has the same id."""
    owner = visitor.owner
    id_ = await service.limiters.datasets.run(lambda: service.studies.submit(body, owner))
    if seconds and not await asyncio.to_thread(service.results.has, id_):
        await service.watcher.ended(id_, seconds)
        response.headers["Preference-Applied"] = f"wait={seconds:g}"
    try:
        document = await _document(service, id_)
    except Unknown:  # its result was removed meanwhile, by somebody of whom the index has not heard
        await service.limiters.datasets.run(lambda: service.studies.submit(body, owner))
        document = await _document(service, id_)
    response.headers["Location"] = f"{documents.PREFIX}/{id_}"
    response.status_code = 202 if document.status in ("queued", "running") else 200
    return document


@router.get("")
async def recent(
    service: ServiceDep,
    visitor: VisitorDep,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    cursor: TimeCursor = None,
) -> Page[StudyItem]:
    """One's own studies, the newest first."""

    def page() -> Page[StudyItem]:
        jobs = service.database.page(limit, before(cursor), visitor.owner, "study")
        items = [documents.item(job, _parts(service, job)) for job in jobs]
        return Page(items=items, next=repr(jobs[-1].created) if len(jobs) == limit else None)

    return await asyncio.to_thread(page)


@router.get("/{id}")
async def show(id_: StudyId, service: ServiceDep) -> StudyDocument:
    """A study: how far it is, and when it is done what went into it and what can be had of it."""
    return await _document(service, id_)


@router.delete(
    "/{id}", status_code=202, response_model=StudyDocument, responses={204: {"description": "It is forgotten."}}
)
async def delete(id_: StudyId, service: ServiceDep, visitor: VisitorDep) -> Response:
    """Cancel a study that has not ended (202); forget one that has (204). What other users asked for, too, goes on for them (204)."""
    if not await asyncio.to_thread(service.cancel, id_, visitor.owner, "study"):
        return Response(status_code=204)
    return JSONResponse((await _document(service, id_)).model_dump(mode="json"), 202)


@router.get("/{id}/events", responses=media("text/event-stream"), response_class=EventSourceResponse)
async def events(id_: StudyId, service: ServiceDep, after: LastEvent) -> EventSourceResponse:
    """Progress as server-sent events named `progress`; the last one has a terminal status. Resumes after `Last-Event-ID`."""
    await asyncio.to_thread(service.find_or_recompute, id_, "study")
    return EventSourceResponse(_stream(service, id_, after), ping=15, send_timeout=30)


async def _stream(service: Service, id_: str, after: int) -> AsyncIterator[ServerSentEvent]:
    seen = False
    async for job in service.watcher.changes(id_, after):
        seen = True
        event = await asyncio.to_thread(lambda job=job: documents.event(job, *_place(service, job)))  # type: ignore[misc]
        yield ServerSentEvent(event.model_dump_json(), event="progress", id=str(job.version))
    if not seen:  # only the result is left, or everything was sent before
        document = await _document(service, id_)
        last = StudyEvent(**document.model_dump(include=set(StudyEvent.model_fields)))
        yield ServerSentEvent(last.model_dump_json(), event="progress", id=str(after))


def _parts(service: Service, job: Job) -> list[ChunkState]:
    return [] if job.terminal else service.database.chunks(job.id)


def _place(service: Service, job: Job) -> tuple[list[ChunkState], int | None]:
    """The chunks of a study that is under way, and how many jobs are taken before the next of them."""
    parts = _parts(service, job)
    waiting = [part for part in parts if part.status == "queued"]
    first = min(waiting, key=documents.number, default=None) if len(waiting) == len(parts) else None
    found = service.database.get(first.id) if first else None
    return parts, service.queue_position(found or job) if first else None


async def _document(service: Service, id_: str) -> StudyDocument:
    def described() -> StudyDocument:
        job, stored = service.find_or_recompute(id_, "study")
        return documents.study(id_, job, stored, *(_place(service, job) if job and not stored else ()))

    return await asyncio.to_thread(described)
