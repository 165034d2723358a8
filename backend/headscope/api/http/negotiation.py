"""Request headers that state preferences: Accept, Accept-Encoding, Prefer and Last-Event-ID."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal, TypeVar

from fastapi import Depends, Header, Request

MAX_WAIT_SECONDS = 60.0
F = TypeVar("F", bound=str)
Coding = Literal["zstd", "gzip"]
CODINGS: tuple[Coding, ...] = ("zstd", "gzip")


def parse_weights(header: str) -> dict[str, float]:
    """Parse an Accept or Accept-Encoding header (RFC 9110, section 12.4.2) into lower-case names and their weights, 0 to 1."""
    weights: dict[str, float] = {}
    for part in header.lower().split(","):
        name, *params = (piece.strip() for piece in part.split(";"))
        weight = next((param.removeprefix("q=") for param in params if param.startswith("q=")), "1")
        weights[name] = float(weight) if re.fullmatch(r"0(\.\d{0,3})?|1(\.0{0,3})?", weight) else 0.0
    return weights


def choose_media(request: Request, requested: F | None, media: Mapping[F, str]) -> F:
    """Return the format of `?format=` if given, otherwise the one whose media type has the largest weight in the Accept header; the first if it names none."""
    if requested:
        return requested
    weights = parse_weights(request.headers.get("accept", ""))
    return max(media, key=lambda name: weights.get(media[name].partition(";")[0], 0.0))


def choose_coding(request: Request) -> Coding | None:
    """Return the coding with the largest weight in Accept-Encoding, zstd of two with the same; None if the client accepts none or prefers no coding."""
    weights = parse_weights(request.headers.get("accept-encoding", ""))
    best = max(CODINGS, key=lambda coding: weights.get(coding, 0.0))
    weight = weights.get(best, 0.0)
    return best if weight > 0 and weight >= weights.get("identity", 0.0) else None


def accepts_gzip(request: Request) -> bool:
    """Return whether the client accepts a gzip-compressed response."""
    return parse_weights(request.headers.get("accept-encoding", "")).get("gzip", 0.0) > 0


async def wait_seconds(
    request: Request,
    _: Annotated[
        str | None, Header(alias="Prefer", description="`wait=N` waits for up to N seconds (60 at most).")
    ] = None,
) -> float:
    """Return N of `Prefer: wait=N` (RFC 7240), at most MAX_WAIT_SECONDS; 0 if absent. Several headers count as one list."""
    preferred = ",".join(request.headers.getlist("prefer"))
    matched = re.search(r"(?:^|[,;\s])wait=(\d{1,6}(?:\.\d{1,6})?)", preferred, re.IGNORECASE)
    return min(float(matched.group(1)), MAX_WAIT_SECONDS) if matched else 0.0


async def last_event(
    last_event_id: Annotated[str | None, Header(description="Resume the stream after the event with this id.")] = None,
) -> int:
    """Return the number in `Last-Event-ID`; 0 if absent or invalid."""
    return int(last_event_id) if last_event_id and re.fullmatch(r"\d{1,18}", last_event_id) else 0


WaitSeconds = Annotated[float, Depends(wait_seconds)]
LastEvent = Annotated[int, Depends(last_event)]
