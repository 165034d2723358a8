"""Dependencies that routes share: the service, the visitor, analyses and studies that the visitor may read, and parts of them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, Literal, cast

from fastapi import Depends, Path, Request

from ..errors import InvalidRequest, NotReady, Unknown
from ..jobs import JobKind
from ..lenses import LENSES
from ..server.service import Service, unknown_job
from ..store.export import Source
from ..store.map_file import Corrupt
from .middleware.access import Visitor
from .middleware.metrics import PREFIX
from .resources import Resource


async def _service(request: Request) -> Service:
    return cast("Service", request.app.state.service)


async def _visitor(request: Request) -> Visitor:
    return cast("Visitor", request.scope["visitor"])


ServiceDep = Annotated[Service, Depends(_service)]
VisitorDep = Annotated[Visitor, Depends(_visitor)]
NO_MAPS = "This analysis kept only thumbnails and measures, not maps. Send its request with maps: true."
# Declared but not validated: a malformed id is simply unknown.
ID: dict[str, Any] = {"pattern": "^[0-9a-f]{32}$"}


async def _kind(request: Request) -> JobKind:
    return "study" if request.scope["path"].startswith(f"{PREFIX}/studies") else "analysis"


KindDep = Annotated[JobKind, Depends(_kind)]


def _resource(parameter: str, description: str) -> Any:
    """Return a dependency: an analysis or study that the visitor may read. Raises Unknown, the same whether or not it exists."""

    async def find(
        request: Request, id_: str = Path(alias=parameter, json_schema_extra=ID, description=description)
    ) -> Resource:
        # Called here instead of injected: FastAPI takes longer for three dependencies than for the rest of a read.
        service, visitor, kind = await _service(request), await _visitor(request), await _kind(request)
        if re.fullmatch(ID["pattern"], id_) is None:
            raise unknown_job(kind)
        if not await visitor.may_read(service, id_):
            raise unknown_job(kind)
        return Resource(request, service, visitor, kind, id_)

    return Depends(find)


ResourceDep = Annotated[Resource, _resource("id", "Id of the analysis or study.")]
OtherDep = Annotated[Resource, _resource("other", "Id of the other analysis; may be the same.")]


async def _effect(
    analysis: ResourceDep,
    effect: str = Path(json_schema_extra=ID, description="Id of the effect."),
) -> Resource:
    """Return an effect on an analysis that the visitor may read. Raises Unknown, the same for an effect on another analysis."""
    service = analysis.service
    with suppress(Corrupt):  # the analysis exists, and is computed again when it is read
        await asyncio.to_thread(service.find, analysis.id)
    known = re.fullmatch(ID["pattern"], effect) is not None
    if not known or await asyncio.to_thread(service.effects.analysis_of, effect) != analysis.id:
        raise unknown_job("effect")
    return Resource(analysis.request, service, analysis.visitor, "effect", effect)


EffectDep = Annotated[Resource, Depends(_effect)]


async def _head_scores(
    request: Request,
    service: ServiceDep,
    visitor: VisitorDep,
    model: str,
    id_: str = Path(alias="id", json_schema_extra=ID, description="Id of the head scores."),
) -> Resource:
    """Return head scores that the visitor may read. Raises Unknown, the same for those of another model."""
    known = re.fullmatch(ID["pattern"], id_) is not None and await visitor.may_read(service, id_)
    if not known or await asyncio.to_thread(service.head_scores.model_of, id_) != model:
        raise unknown_job("head-scores")
    return Resource(request, service, visitor, "head-scores", id_)


HeadScoresDep = Annotated[Resource, Depends(_head_scores)]


def limit_by(kind: Literal["uploads", "exports", "comparisons"]) -> Any:
    """Return a dependency that holds a slot of a limiter until the response is sent. Raises TooManyRequests."""

    async def hold(service: ServiceDep) -> AsyncIterator[None]:
        async with getattr(service.limiters, kind).slot():
            yield

    return Depends(hold)


def parse_slice(axis: str, text: str | None, numbers: Sequence[int]) -> slice:
    """Parse an index such as `4` or a range such as `2:5` into a slice of `numbers`, the indices along this axis. Raises InvalidRequest or Unknown."""
    if text is None:
        return slice(0, len(numbers))
    matched = re.fullmatch(r"(\d{1,6})|(\d{0,6}):(\d{0,6})", text)
    if matched is None:
        raise InvalidRequest(f"{axis} must be an index such as 4, or a range such as 2:5.", pointer=f"/{axis}")
    single, low, high = matched.groups()
    first, last = (int(single), int(single) + 1) if single else (int(low or 0), int(high or 10**6))
    selected = [position for position, number in enumerate(numbers) if first <= number < last]
    if not selected:
        reason = (
            f"The range {text} is empty: its end, which is not included, must be above its start."
            if first >= last
            else f"This analysis has no such {axis}. Choose {_listed(numbers)}."
        )
        raise Unknown(axis, reason, pointer=f"/{axis}")
    return slice(selected[0], selected[-1] + 1)


def _listed(numbers: Sequence[int]) -> str:
    """Return the numbers in words, in short if none is missing between them."""
    if len(numbers) == 1:
        return str(numbers[0])
    if numbers[-1] - numbers[0] + 1 == len(numbers):
        return f"one from {numbers[0]} to {numbers[-1]}"
    return f"one of {', '.join(map(str, numbers))}"


def heads_of(document: dict[str, Any], lens: str) -> list[int]:
    """Return the head indices along axis H of a lens' map; [0] if it has one map per layer."""
    return list(document["heads"]) if LENSES[lens].of == "heads" else [0]


def check_kept(source: Source, lens: str) -> None:
    """Raise Unknown unless the analysis includes the lens, NotReady unless it kept the maps."""
    check_lens(source, lens)
    if lens not in source.document["kept"]:
        raise NotReady(NO_MAPS)


def check_lens(source: Source, lens: str) -> None:
    """Raise Unknown unless the lens exists and the analysis includes it."""
    check_name("lens", lens, LENSES)
    if lens not in source.document["lenses"]:
        raise Unknown(
            "lens", "This analysis does not include that lens. Send its request with the lens added.", pointer="/lens"
        )


def check_name(what: str, name: str, known: Mapping[str, object]) -> None:
    """Raise Unknown unless the name is known; `what` is a word such as lens, and the query parameter."""
    if name not in known:
        raise Unknown(what, f"This {what} does not exist. Choose one of: {', '.join(known)}.", pointer=f"/{what}")
