"""Dependencies that routes share: the service, the visitor, ids that the visitor may read, and reading results."""

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
# How long a request waits for a corrupt result to be computed again.
RECOMPUTE_SECONDS = 60.0
# The `responses` of routes that call `read`.
READS = raises(NotReady, QueueFull)


async def _service(request: Request) -> Service:
    return cast("Service", request.app.state.service)


async def _visitor(request: Request) -> Visitor:
    return cast("Visitor", request.scope["visitor"])


ServiceDep = Annotated[Service, Depends(_service)]
VisitorDep = Annotated[Visitor, Depends(_visitor)]
# Declared but not validated: a malformed id is simply unknown.
ID: dict[str, Any] = {"pattern": "^[0-9a-f]{32}$"}


def _readable(kind: JobKind, parameter: str, description: str) -> Any:
    """Return a dependency: an id that the visitor may read. Raises Unknown, the same whether or not it exists."""

    async def check(
        service: ServiceDep,
        visitor: VisitorDep,
        id_: str = Path(alias=parameter, json_schema_extra=ID, description=description),
    ) -> str:
        if re.fullmatch(ID["pattern"], id_) is None:
            raise unknown_job(kind)
        if not visitor.opens(id_) and not await asyncio.to_thread(visitor.may_read, service.database, id_):
            raise unknown_job(kind)
        return id_

    return Depends(check)


AnalysisId = Annotated[str, _readable("analysis", "id", "Id of the analysis.")]
OtherId = Annotated[str, _readable("analysis", "other", "Id of the other analysis; may be the same.")]
StudyId = Annotated[str, _readable("study", "id", "Id of the study.")]


def limit_by(kind: Literal["uploads", "exports", "comparisons"]) -> Any:
    """Return a dependency that holds a slot of a limiter until the response is sent. Raises TooManyRequests."""

    async def hold(service: ServiceDep) -> AsyncIterator[None]:
        async with getattr(service.limiters, kind).slot():
            yield

    return Depends(hold)


async def read(service: Service, id_: str, reader: Callable[[Stored], T], kind: JobKind = "analysis") -> T:
    """Call `reader` on a finished analysis or study in a thread. A corrupt result is computed again first. Raises Unknown or NotReady."""
    for _ in range(2):
        result = await service.limiters.results.run(
            lambda: read_or_recompute(service, id_, lambda stored: (reader(stored),), kind)
        )
        if result is not None:
            return result[0]
        await service.watcher.ended(id_, RECOMPUTE_SECONDS)
    raise NotReady("The stored result was corrupt and is being computed again. Try again in a moment.")


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
        raise Unknown(
            axis,
            f"This analysis has no such {axis}. Choose one from {numbers[0]} to {numbers[-1]}.",
            pointer=f"/{axis}",
        )
    return slice(selected[0], selected[-1] + 1)


def heads_of(document: dict[str, Any], lens: str) -> list[int]:
    """Return the head indices along axis H of a lens' map; [0] if it has one map per layer."""
    return list(document["heads"]) if LENSES[lens].of == "heads" else [0]


def check_kept(stored: Stored, lens: str) -> None:
    """Raise Unknown unless the analysis includes the lens, NotReady unless it kept the maps."""
    check_lens(stored, lens)
    if lens not in stored.document["kept"]:
        raise NotReady("This analysis kept only thumbnails and measures, not maps. Send its request with maps: true.")


def check_lens(stored: Stored, lens: str) -> None:
    """Raise Unknown unless the lens exists and the analysis includes it."""
    if lens not in LENSES:
        raise Unknown("lens", f"This lens does not exist. Choose one of: {', '.join(LENSES)}.", pointer="/lens")
    if lens not in stored.document["lenses"]:
        raise Unknown(
            "lens", "This analysis does not include that lens. Send its request with the lens added.", pointer="/lens"
        )
