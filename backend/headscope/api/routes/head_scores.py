"""Routes of head scores: what every head of a model is for, as far as batteries tell."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from fastapi import APIRouter, Response

from ...analysis.head_scores_request import HeadScoresRequest
from ...errors import ModelUnavailable, QueueFull
from ..dependencies import HeadScoresDep, ServiceDep, VisitorDep
from ..documents.head_scores import to_document
from ..error_responses import raises
from ..http.conditional import CONDITIONAL
from ..http.negotiation import WaitSeconds
from ..schemas.head_scores import HeadScoresDocument
from .jobs import DELETED, Submission, describe_single, end, show_single, submit

router = APIRouter(prefix="/models/{model:path}/head-scores", tags=["head scores"])

ACCEPTS = raises(ModelUnavailable, QueueFull)
describe = partial(describe_single, "head-scores", to_document)


@router.post(
    "", status_code=202, response_model=HeadScoresDocument, responses={**ACCEPTS, 200: {"model": HeadScoresDocument}}
)
async def create(
    model: str,
    body: HeadScoresRequest,
    response: Response,
    service: ServiceDep,
    visitor: VisitorDep,
    seconds: WaitSeconds,
) -> Any:
    """Test what every head of a causal language model is for, such as induction, on prompts made for the model. Identical requests have the same id.

    The status is 200 if the result is stored or ready within `Prefer: wait=N` seconds, and 202 otherwise.
    """
    owner = visitor.owner

    async def enqueue() -> Submission:
        return Submission(*await asyncio.to_thread(service.head_scores.submit, model, body, owner))

    return await submit(service, describe, response, seconds, enqueue)


@router.get("/{id}", response_model=HeadScoresDocument, responses=CONDITIONAL)
async def show(scores: HeadScoresDep) -> Response:
    """Return head scores: their progress and, once they are done, the score of every head in every battery beside its control. They never change then."""
    return await show_single(scores, to_document)


@router.delete("/{id}", status_code=202, response_model=HeadScoresDocument, responses=DELETED)
async def delete(scores: HeadScoresDep) -> Response:
    """Cancel queued or running head scores (202), or delete ended ones (204). Those that other users also requested are only removed for you (204)."""
    return await end(scores, describe)
