"""What analyses and studies have in common as jobs: submit, list, follow and cancel."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import accumulate
from typing import Any, NamedTuple, Protocol, TypeVar

from fastapi import APIRouter, Response
from pydantic import BaseModel
from sse_starlette import EventSourceResponse, ServerSentEvent

from ...errors import Unknown
from ...jobs import ChunkState, Job, JobKind
from ...server.service import Service
from ...store import Stored
from ...store.map_file import Corrupt
from ..dependencies import KindDep, ResourceDep, ServiceDep, VisitorDep
from ..documents import analyses, studies
from ..error_responses import media
from ..http.negotiation import LastEvent
from ..http.paging import JobLimit, TimeCursor
from ..resources import Resource
from ..schemas.analyses import AnalysisDocument, AnalysisItem, Event
from ..schemas.common import Page
from ..schemas.single import SingleDocument
from ..schemas.studies import StudyDocument, StudyEvent, StudyItem

router = APIRouter()
Document = TypeVar("Document", bound=SingleDocument, covariant=True)

# The requests of a page are no longer than this in all, or it has one.
PAGE_BYTES = 2 * 1024 * 1024
DELETED: dict[int | str, dict[str, Any]] = {204: {"description": "It was deleted."}}
EVENTS = media("text/event-stream")


class Submission(NamedTuple):
    """The id of a submitted job, and whether its result was already stored."""

    id: str
    stored: bool


class ToDocument(Protocol[Document]):
    """Returns the document of a job with one result, from its job, its result, or both."""

    def __call__(
        self, id_: str, job: Job | None, stored: Stored | None, position: int | None = None, /
    ) -> Document: ...


class JobDocuments(NamedTuple):
    """The documents of one kind of job. The functions may block."""

    event: type[BaseModel]
    to_document: Callable[[Service, str], Any]
    to_item: Callable[[Service, Job], Any]
    to_event: Callable[[Service, Job], BaseModel]


async def submit(
    service: Service,
    describe: Callable[[Service, str], Any],
    response: Response,
    seconds: float,
    enqueue: Callable[[], Awaitable[Submission]],
) -> Any:
    """Enqueue a job, wait for it for up to `seconds`, and return what `describe` returns. Both may be called twice, `describe` in threads."""
    id_, stored = await enqueue()
    if seconds and not stored:
        await service.watcher.ended(id_, seconds)
        response.headers["Preference-Applied"] = f"wait={seconds:g}"
    try:
        document = await asyncio.to_thread(describe, service, id_)
    except Unknown:  # the index listed a result that has been removed
        id_, stored = await enqueue()
        document = await asyncio.to_thread(describe, service, id_)
    response.headers["Location"] = document.links["self"]
    # A job that has ended since it was accepted keeps 202 if the client did not wait: it tells whose analysis this is.
    response.status_code = 200 if stored or (seconds and document.status not in ("queued", "running")) else 202
    return document


def describe_single(kind: JobKind, to_document: ToDocument[Document], service: Service, id_: str) -> Document:
    """Return the document of a job with one result. Raises Unknown."""
    job, stored = service.find_or_recompute(id_, kind)
    return to_document(id_, job, stored, service.queue_position(job) if job else None)


async def show_single(job: Resource, to_document: ToDocument[Document]) -> Response:
    """Respond with the document of a job with one result. It never changes once it is done."""
    document = await asyncio.to_thread(describe_single, job.kind, to_document, job.service, job.id)
    if document.status == "done":
        return await job.respond_json(lambda stored: to_document(job.id, None, stored))
    return _to_json(document)


@router.get("/analyses", tags=["analyses"], response_model=Page[AnalysisItem])
@router.get("/studies", tags=["studies"], response_model=Page[StudyItem])
async def recent(
    kind: KindDep, service: ServiceDep, visitor: VisitorDep, limit: JobLimit = 50, cursor: TimeCursor = None
) -> Page[Any]:
    """List your analyses or studies, newest first. A page has fewer than `limit` where their texts are long."""

    def page() -> Page[Any]:
        jobs = service.database.page(limit, float(cursor or "inf"), visitor.owner, kind)
        sums = accumulate(len(job.payload) for job in jobs)
        shown = jobs[: max(sum(size <= PAGE_BYTES for size in sums), 1)]
        items = [DOCUMENTS[kind].to_item(service, job) for job in shown]
        return Page(items=items, next=repr(shown[-1].created) if len(jobs) == limit or len(shown) < len(jobs) else None)

    return await asyncio.to_thread(page)


@router.delete("/analyses/{id}", tags=["analyses"], status_code=202, response_model=AnalysisDocument, responses=DELETED)
@router.delete("/studies/{id}", tags=["studies"], status_code=202, response_model=StudyDocument, responses=DELETED)
async def delete(job: ResourceDep) -> Response:
    """Cancel a queued or running analysis or study (202), or delete an ended one (204). One that other users also requested is only removed for you (204)."""
    return await end(job, DOCUMENTS[job.kind].to_document)


async def end(job: Resource, describe: Callable[[Service, str], BaseModel]) -> Response:
    """Cancel a queued or running job, and respond with what `describe` returns; or delete an ended one."""
    if not await asyncio.to_thread(job.service.cancel, job.id, job.visitor.owner, job.kind):
        return Response(status_code=204)
    return _to_json(await asyncio.to_thread(describe, job.service, job.id), 202)


def _to_json(document: BaseModel, status: int = 200) -> Response:
    return Response(document.model_dump_json(), status, media_type="application/json")


@router.get("/analyses/{id}/events", tags=["analyses"], responses=EVENTS, response_class=EventSourceResponse)
@router.get("/studies/{id}/events", tags=["studies"], responses=EVENTS, response_class=EventSourceResponse)
async def events(job: ResourceDep, after: LastEvent) -> EventSourceResponse:
    """Stream progress as server-sent events named `progress`. The last one has a final status. Send `Last-Event-ID` to resume."""
    await asyncio.to_thread(job.service.find_or_recompute, job.id, job.kind)
    return EventSourceResponse(_stream(job, after), ping=15, send_timeout=30)


async def _stream(resource: Resource, after: int) -> AsyncIterator[ServerSentEvent]:
    """Yield the events after version `after` of a job."""
    service, documents, sent = resource.service, DOCUMENTS[resource.kind], False
    async for job in service.watcher.changes(resource.id, after):
        sent = True
        event = await asyncio.to_thread(documents.to_event, service, job)
        yield ServerSentEvent(event.model_dump_json(), event="progress", id=str(job.version))
    if not sent:  # the job is gone, or all of its events were sent before
        document = await _show(service, resource.kind, resource.id)
        last = documents.event(**document.model_dump(include=set(documents.event.model_fields)))
        yield ServerSentEvent(last.model_dump_json(), event="progress", id=str(after))


async def _show(service: Service, kind: JobKind, id_: str) -> Any:
    """Return the document of a job or its result. Raises Unknown."""
    return await asyncio.to_thread(DOCUMENTS[kind].to_document, service, id_)


def describe_analysis(service: Service, id_: str, job: Job | None, stored: Stored | None) -> AnalysisDocument:
    """Return the document of an analysis. A corrupt file that is only read for the document is computed again."""
    try:
        return analyses.to_document(id_, job, stored, service.queue_position(job) if job else None)
    except Corrupt:
        service.recompute(id_, "analysis")
        return analyses.to_document(id_, *service.find(id_))


def describe_study(service: Service, id_: str) -> StudyDocument:
    """Return the document of a study. Raises Unknown."""
    job, stored = service.find_or_recompute(id_, "study")
    return studies.to_document(id_, job, stored, *(_chunks_and_position(service, job) if job and not stored else ()))


def _chunks(service: Service, job: Job) -> list[ChunkState]:
    return [] if job.terminal else service.database.chunks(job.id)


def _chunks_and_position(service: Service, job: Job) -> tuple[list[ChunkState], int | None]:
    """Return the chunks of a study, and the number of jobs ahead of its first chunk if none has started."""
    chunks = _chunks(service, job)
    first = min(chunks, key=studies.chunk_number, default=None)
    if first is None or any(chunk.status != "queued" for chunk in chunks):
        return chunks, None
    return chunks, service.queue_position(service.database.get(first.id) or job)


DOCUMENTS: dict[JobKind, JobDocuments] = {
    "analysis": JobDocuments(
        Event,
        to_document=lambda service, id_: describe_analysis(service, id_, *service.find_or_recompute(id_)),
        to_item=lambda _, job: analyses.to_item(job),
        to_event=lambda service, job: analyses.to_event(job, service.queue_position(job)),
    ),
    "study": JobDocuments(
        StudyEvent,
        to_document=describe_study,
        to_item=lambda service, job: studies.to_item(job, _chunks(service, job)),
        to_event=lambda service, job: studies.to_event(job, *_chunks_and_position(service, job)),
    ),
}
