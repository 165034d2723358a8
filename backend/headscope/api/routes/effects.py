"""Routes of effects: what heads do to a prediction of an analysis."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from ...analysis.effect_request import EffectRequest
from ...errors import ModelUnavailable, NotReady, QueueFull
from ...server.service import unknown_job
from ...store import Stored
from ..dependencies import EffectDep, ResourceDep
from ..documents import effects
from ..error_responses import raises
from ..http.conditional import CONDITIONAL
from ..http.negotiation import WaitSeconds
from ..http.tensors import choose_format
from ..schemas.effects import EffectDocument
from .jobs import DELETED, Submission, describe_single, end, show_single, submit
from .maps import TENSOR, MapSlice

router = APIRouter(prefix="/analyses/{id}/effects", tags=["effects"])

ACCEPTS = raises(NotReady, ModelUnavailable, QueueFull)
describe = partial(describe_single, "effect", effects.to_document)


@router.post("", status_code=202, response_model=EffectDocument, responses={**ACCEPTS, 200: {"model": EffectDocument}})
async def create(analysis: ResourceDep, body: EffectRequest, response: Response, seconds: WaitSeconds) -> Any:
    """Compute what heads do to a prediction of a finished analysis. Identical requests have the same id.

    The status is 200 if the result is stored or ready within `Prefer: wait=N` seconds, and 202 otherwise.
    """
    service, owner = analysis.service, analysis.visitor.owner

    async def enqueue() -> Submission:
        return await analysis.read(lambda stored: Submission(*service.effects.submit(stored, body, owner)))

    return await submit(service, describe, response, seconds, enqueue)


@router.get("/{effect}", response_model=EffectDocument, responses=CONDITIONAL)
async def show(effect: EffectDep) -> Response:
    """Return an effect: its progress and, once it is done, the target, the most likely predictions and what every head does. It never changes then."""
    return await show_single(effect, effects.to_document)


@router.get("/{effect}/maps", responses={**TENSOR, **CONDITIONAL}, response_class=Response)
async def maps(effect: EffectDep, part: Annotated[MapSlice, Query()]) -> Response:
    """Return `map` [L', H', Q', K'], whose sums are the effects of heads, of a method that has a map for every head. Parameters are those of the maps of a lens."""
    format_ = choose_format(effect.request, part.format)

    def respond(stored: Stored) -> Response:
        name, axes = effects.map_axes(stored)
        return part.read(effect.service.limiters.memory, name, format_, stored, axes, signed=True)

    return await effect.respond(format_, respond, computed=part.is_computed(format_))


@router.delete("/{effect}", status_code=202, response_model=EffectDocument, responses=DELETED)
async def delete(effect: EffectDep) -> Response:
    """Cancel a queued or running effect (202), or delete an ended one (204). One that other users also requested is only removed for you (204)."""
    # Everyone who may read its analysis may read it. Only users who requested it may delete it.
    if not await effect.visitor.may_read(effect.service, effect.id):
        raise unknown_job("effect")
    return await end(effect, describe)
