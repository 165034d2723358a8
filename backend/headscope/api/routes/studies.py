"""Routes of studies: submit, list, show, follow, cancel."""

from __future__ import annotations

from fastapi import APIRouter, Response
from sse_starlette import EventSourceResponse

from ...errors import DatasetUnavailable, ModelUnavailable, QueueFull, Unknown
from ...jobs import ChunkState, Job
from ...server.service import Service
from ...studies.request import StudyRequest
from ..dependencies import ServiceDep, StudyId, VisitorDep
from ..documents import studies as documents
from ..error_responses import media, raises
from ..http.negotiation import LastEvent, WaitSeconds
from ..http.paging import JobLimit, TimeCursor
from ..schemas.common import Page
from ..schemas.studies import StudyDocument, StudyEvent, StudyItem
from .jobs import JobRoutes

router = APIRouter(prefix="/studies", tags=["studies"])

ACCEPTS = raises(Unknown, ModelUnavailable, DatasetUnavailable, QueueFull)


@router.post("", status_code=202, response_model=StudyDocument, responses={**ACCEPTS, 200: {"model": StudyDocument}})
async def create(
    body: StudyRequest, response: Response, service: ServiceDep, visitor: VisitorDep, seconds: WaitSeconds
) -> StudyDocument:
    """Submit a study. The status is 200 if its result is stored or ready within `Prefer: wait=N` seconds, and 202 otherwise. Identical requests have the same id."""
    owner = visitor.owner
    return await ROUTES.submit(
        service,
        response,
        seconds,
        lambda: service.limiters.datasets.run(lambda: service.studies.submit(body, owner)),
    )


@router.get("")
async def recent(
    service: ServiceDep, visitor: VisitorDep, limit: JobLimit = 50, cursor: TimeCursor = None
) -> Page[StudyItem]:
    """List your studies, newest first."""
    return await ROUTES.list_page(service, visitor, limit, cursor)


@router.get("/{id}")
async def show(id_: StudyId, service: ServiceDep) -> StudyDocument:
    """Return a study: its progress and, once it is done, what went into it and which figures and tables are available."""
    return await ROUTES.show(service, id_)


@router.delete(
    "/{id}", status_code=202, response_model=StudyDocument, responses={204: {"description": "It was deleted."}}
)
async def delete(id_: StudyId, service: ServiceDep, visitor: VisitorDep) -> Response:
    """Cancel a queued or running study (202), or delete an ended one (204). A study that other users also requested is only removed for you (204)."""
    return await ROUTES.cancel(service, visitor, id_)


@router.get("/{id}/events", responses=media("text/event-stream"), response_class=EventSourceResponse)
async def events(id_: StudyId, service: ServiceDep, after: LastEvent) -> EventSourceResponse:
    """Stream progress as server-sent events named `progress`. The last one has a final status. Send `Last-Event-ID` to resume."""
    return await ROUTES.follow(service, id_, after)


def _describe(service: Service, id_: str) -> StudyDocument:
    job, stored = service.find_or_recompute(id_, "study")
    return documents.to_document(id_, job, stored, *(_chunks_and_position(service, job) if job and not stored else ()))


def _chunks(service: Service, job: Job) -> list[ChunkState]:
    return [] if job.terminal else service.database.chunks(job.id)


def _chunks_and_position(service: Service, job: Job) -> tuple[list[ChunkState], int | None]:
    """Return the chunks of a study, and the number of jobs ahead of its first chunk if none has started."""
    chunks = _chunks(service, job)
    if any(chunk.status != "queued" for chunk in chunks):
        return chunks, None
    first = min(chunks, key=documents.chunk_number, default=None)
    if first is None:
        return chunks, None
    return chunks, service.queue_position(service.database.get(first.id) or job)


ROUTES = JobRoutes[StudyDocument, StudyItem](
    kind="study",
    prefix=documents.PREFIX,
    event=StudyEvent,
    to_document=_describe,
    to_item=lambda service, job: documents.to_item(job, _chunks(service, job)),
    to_event=lambda service, job: documents.to_event(job, *_chunks_and_position(service, job)),
)
