"""What the routes of analyses and of studies share: submit, list, show, follow and cancel a job."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from fastapi import Response
from pydantic import BaseModel
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.responses import JSONResponse

from ...errors import Unknown
from ...jobs import Job, JobKind
from ...server.service import Service
from ..http.paging import parse_time
from ..middleware.access import Visitor
from ..schemas.analyses import AnalysisDocument, AnalysisItem
from ..schemas.common import Page
from ..schemas.studies import StudyDocument, StudyItem

Document = TypeVar("Document", AnalysisDocument, StudyDocument)
Item = TypeVar("Item", AnalysisItem, StudyItem)


@dataclass(frozen=True)
class JobRoutes(Generic[Document, Item]):
    """The implementation of the routes of one kind of job. The functions that build its documents may block."""

    kind: JobKind
    prefix: str
    event: type[BaseModel]
    to_document: Callable[[Service, str], Document]
    to_item: Callable[[Service, Job], Item]
    to_event: Callable[[Service, Job], BaseModel]

    async def submit(
        self, service: Service, response: Response, seconds: float, enqueue: Callable[[], Awaitable[str]]
    ) -> Document:
        """Enqueue a job, wait for it for up to `seconds`, and return its document. `enqueue` returns its id and may be called twice."""
        id_ = await enqueue()
        if seconds and not await asyncio.to_thread(service.results.has, id_):
            await service.watcher.ended(id_, seconds)
            response.headers["Preference-Applied"] = f"wait={seconds:g}"
        try:
            document = await self.show(service, id_)
        except Unknown:  # the index listed a result that has been removed
            await enqueue()
            document = await self.show(service, id_)
        response.headers["Location"] = f"{self.prefix}/{id_}"
        response.status_code = 202 if document.status in ("queued", "running") else 200
        return document

    async def list_page(self, service: Service, visitor: Visitor, limit: int, cursor: str | None) -> Page[Item]:
        """Return a page of the visitor's jobs, newest first."""

        def page() -> Page[Item]:
            jobs = service.database.page(limit, parse_time(cursor), visitor.owner, self.kind)
            items = [self.to_item(service, job) for job in jobs]
            return Page(items=items, next=repr(jobs[-1].created) if len(jobs) == limit else None)

        return await asyncio.to_thread(page)

    async def show(self, service: Service, id_: str) -> Document:
        """Return the document of a job or its result. Raises Unknown."""
        return await asyncio.to_thread(self.to_document, service, id_)

    async def cancel(self, service: Service, visitor: Visitor, id_: str) -> Response:
        """Cancel a queued or running job (202), or delete an ended one (204)."""
        if not await asyncio.to_thread(service.cancel, id_, visitor.owner, self.kind):
            return Response(status_code=204)
        return JSONResponse((await self.show(service, id_)).model_dump(mode="json"), 202)

    async def follow(self, service: Service, id_: str, after: int) -> EventSourceResponse:
        """Stream the events after version `after` of a job. Raises Unknown."""
        await asyncio.to_thread(service.find_or_recompute, id_, self.kind)
        return EventSourceResponse(self._stream(service, id_, after), ping=15, send_timeout=30)

    async def _stream(self, service: Service, id_: str, after: int) -> AsyncIterator[ServerSentEvent]:
        sent = False
        async for job in service.watcher.changes(id_, after):
            sent = True
            event = await asyncio.to_thread(self.to_event, service, job)
            yield ServerSentEvent(event.model_dump_json(), event="progress", id=str(job.version))
        if not sent:  # the job is gone, or all of its events were sent before
            document = await self.show(service, id_)
            last = self.event(**document.model_dump(include=set(self.event.model_fields)))
            yield ServerSentEvent(last.model_dump_json(), event="progress", id=str(after))
