"""Routes that submit and show analyses."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from fastapi import APIRouter, Response

from ...analysis.request import AnalysisRequest
from ...errors import HeadscopeError, ModelUnavailable, QueueFull, Unknown
from ..dependencies import ResourceDep, ServiceDep, VisitorDep
from ..error_responses import raises
from ..http.compression import LARGE_JSON, compress
from ..http.negotiation import WaitSeconds
from ..http.response_cache import CachedRoute
from ..schemas.analyses import AnalysisDocument, BatchAccepted, BatchInput, BatchRequest
from .jobs import DOCUMENTS, Submission, describe_analysis, submit

router = APIRouter(prefix="/analyses", tags=["analyses"], route_class=CachedRoute)

ACCEPTS = raises(Unknown, ModelUnavailable, QueueFull)


@router.post(
    "", status_code=202, response_model=AnalysisDocument, responses={**ACCEPTS, 200: {"model": AnalysisDocument}}
)
async def create(
    body: AnalysisRequest, response: Response, service: ServiceDep, visitor: VisitorDep, seconds: WaitSeconds
) -> Any:
    """Submit an analysis. The status is 200 if its result is stored or ready within `Prefer: wait=N` seconds, and 202 otherwise. Identical requests have the same id."""
    owner = visitor.owner

    def enqueue() -> Submission:
        _, (id_,), stored = service.submit([body], owner=owner)
        return Submission(id_, id_ in stored)

    return await submit(
        service,
        DOCUMENTS["analysis"].to_document,
        response,
        seconds,
        partial(service.limiters.submissions.run, enqueue),
    )


@router.post("/batch", status_code=202, responses=ACCEPTS)
async def create_batch(body: BatchRequest, service: ServiceDep, visitor: VisitorDep) -> BatchAccepted:
    """Submit up to 1,000 analyses at once. Either all are accepted or none."""
    owner = visitor.owner
    batch, ids, _ = await service.limiters.submissions.run(
        lambda: service.submit(_split_batch(body), batch=True, owner=owner)
    )
    return BatchAccepted(batch=batch or ids[0], ids=ids)


@router.get("/{id}", response_model=AnalysisDocument)
async def show(analysis: ResourceDep) -> Response:
    """Return an analysis: its progress and, once it is done, tokens, shapes, summaries and links."""
    request, service, id_ = analysis.request, analysis.service, analysis.id

    def respond() -> Response:
        job, stored = service.find_or_recompute(id_)
        document = describe_analysis(service, id_, job, stored)
        response = Response(document.model_dump_json(), media_type="application/json")
        return compress(response, request, LARGE_JSON, level=1)

    return await asyncio.to_thread(respond)


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
