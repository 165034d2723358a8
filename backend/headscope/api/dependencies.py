"""What routes share: the service, and reading a result that may have to be computed again."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Annotated, Any, Literal, TypeVar, cast

from fastapi import Depends, Path, Request

from ..errors import InvalidRequest, NotReady, QueueFull, Unknown
from ..jobs import JobKind
from ..lenses import LENSES
from ..server.service import Service, read_or_recompute, unknown_job
from ..store import Stored
from .error_responses import raises
from .middleware.access import Visitor

T = TypeVar("T")
# How long an answer waits for a result that was found corrupt and is computed again.
RECOMPUTE_SECONDS = 60.0
# The errors of `read`.
READS = raises(NotReady, QueueFull)


async def _service(request: Request) -> Service:
    return cast("Service", request.app.state.service)


async def _visitor(request: Request) -> Visitor:
    return cast("Visitor", request.scope["visitor"])


ServiceDep = Annotated[Service, Depends(_service)]
VisitorDep = Annotated[Visitor, Depends(_visitor)]
# What ids look like; what looks otherwise is no id of anything.
ID: dict[str, Any] = {"pattern": "^[0-9a-f]{32}$"}


async def _readable(
    id_: Annotated[str, Path(alias="id", json_schema_extra=ID, description="The analysis' id.")],
    service: ServiceDep,
    visitor: VisitorDep,
) -> str:
    await check_readable(service, visitor, id_)
    return id_


async def _other_readable(
    other: Annotated[str, Path(json_schema_extra=ID, description="The other analysis' id; it may be the same.")],
    service: ServiceDep,
    visitor: VisitorDep,
) -> str:
    await check_readable(service, visitor, other)
    return other


async def _study(
    id_: Annotated[str, Path(alias="id", json_schema_extra=ID, description="The study's id.")],
    service: ServiceDep,
    visitor: VisitorDep,
) -> str:
    await check_readable(service, visitor, id_, "study")
    return id_


# Ids of analyses and studies that whoever asks may read: no route sees another one.
AnalysisId = Annotated[str, Depends(_readable)]
OtherId = Annotated[str, Depends(_other_readable)]
StudyId = Annotated[str, Depends(_study)]
Slice = str


def limited(kind: Literal["uploads", "exports", "comparisons"]) -> Any:
    """A dependency: the request holds a slot of a limiter until its answer is sent. Raises TooManyRequests."""

    async def hold(service: ServiceDep) -> AsyncIterator[None]:
        async with getattr(service.limiters, kind).slot():
            yield

    return Depends(hold)


async def check_readable(service: Service, visitor: Visitor, id_: str, kind: JobKind = "analysis") -> None:
    """Raise Unknown unless the visitor may read that analysis, or study: what is somebody else's is as if it were not there."""
    if re.fullmatch(ID["pattern"], id_) is None:
        raise unknown_job(kind)
    if not visitor.opens(id_) and not await asyncio.to_thread(visitor.may_read, service.database, id_):
        raise unknown_job(kind)


async def read(service: Service, id_: str, reader: Callable[[Stored], T], kind: JobKind = "analysis") -> T:
    """`reader` applied to a finished analysis, or study, in a thread. A corrupt result is computed again first. Raises Unknown or NotReady."""
    for _ in range(2):
        result = await service.limiters.results.run(
            lambda: read_or_recompute(service, id_, lambda stored: (reader(stored),), kind)
        )
        if result is not None:
            return result[0]
        await service.watcher.ended(id_, RECOMPUTE_SECONDS)
    raise NotReady("The stored result was damaged and is being computed again. Try again in a moment.")


def places(what: str, asked: str | None, numbers: Sequence[int]) -> slice:
    """`4` or `2:5` in the model's numbering -> places in the selection that was analysed. Raises InvalidRequest or Unknown."""
    if asked is None:
        return slice(0, len(numbers))
    matched = re.fullmatch(r"(\d{1,6})|(\d{0,6}):(\d{0,6})", asked)
    if matched is None:
        raise InvalidRequest(f"{what} is a whole number such as 4, or a range such as 2:5.", pointer=f"/{what}")
    single, low, high = matched.groups()
    first, last = (int(single), int(single) + 1) if single else (int(low or 0), int(high or 10**6))
    found = [place for place, number in enumerate(numbers) if first <= number < last]
    if not found:
        raise Unknown(
            what, f"The analysis has no such {what}; it has {numbers[0]} to {numbers[-1]}.", pointer=f"/{what}"
        )
    return slice(found[0], found[-1] + 1)


def heads_of(document: dict[str, Any], lens: str) -> list[int]:
    """The head numbers along axis H of a lens' map: 0 alone where it has one map per layer."""
    return list(document["heads"]) if LENSES[lens].of == "heads" else [0]


def check_kept(stored: Stored, lens: str) -> None:
    """Raise Unknown unless the lens was read, NotReady unless its maps were kept."""
    check_lens(stored, lens)
    if lens not in stored.document["kept"]:
        raise NotReady(
            "This analysis kept no maps, only thumbnails and measures. Send its request again with maps: true."
        )


def check_lens(stored: Stored, lens: str) -> None:
    """Raise Unknown unless the lens was read in this analysis."""
    if lens not in LENSES:
        raise Unknown("lens", f"There is no such lens. There are: {', '.join(LENSES)}.", pointer="/lens")
    if lens not in stored.document["lenses"]:
        raise Unknown(
            "lens", "This analysis was not read through that lens. Send the request again with it.", pointer="/lens"
        )
