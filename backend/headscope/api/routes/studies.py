"""Routes that submit and show studies."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from fastapi import APIRouter, Response

from ...errors import DatasetUnavailable, ModelUnavailable, QueueFull, Unknown
from ...studies.request import StudyRequest
from ..dependencies import ResourceDep, ServiceDep, VisitorDep
from ..error_responses import raises
from ..http.negotiation import WaitSeconds
from ..schemas.studies import StudyDocument
from .jobs import Submission, describe_study, submit

router = APIRouter(prefix="/studies", tags=["studies"])

ACCEPTS = raises(Unknown, ModelUnavailable, DatasetUnavailable, QueueFull)


@router.post("", status_code=202, response_model=StudyDocument, responses={**ACCEPTS, 200: {"model": StudyDocument}})
async def create(
    body: StudyRequest, response: Response, service: ServiceDep, visitor: VisitorDep, seconds: WaitSeconds
) -> Any:
    """Submit a study. The status is 200 if its result is stored or ready within `Prefer: wait=N` seconds, and 202 otherwise. Identical requests have the same id."""

    def enqueue() -> Submission:
        return Submission(*service.studies.submit(body, visitor.owner))

    return await submit(service, describe_study, response, seconds, partial(service.limiters.datasets.run, enqueue))


@router.get("/{id}")
async def show(study: ResourceDep) -> StudyDocument:
    """Return a study: its progress and, once it is done, what went into it and which figures and tables are available."""
    return await asyncio.to_thread(describe_study, study.service, study.id)
