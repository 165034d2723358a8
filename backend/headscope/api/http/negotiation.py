"""What a request would rather have: media types and encodings by their weights, and how long it would wait."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import Depends, Header, Request

# Longest wait for a result, in s.
LONGEST_WAIT = 60.0


def weights(header: str) -> dict[str, float]:
    """Names in an Accept or Accept-Encoding header, in lower case, with their weights 0..1 (RFC 9110, section 12.4.2)."""
    found: dict[str, float] = {}
    for part in header.lower().split(","):
        name, *params = (piece.strip() for piece in part.split(";"))
        given = next((param.removeprefix("q=") for param in params if param.startswith("q=")), "1")
        found[name] = float(given) if re.fullmatch(r"0(\.\d{0,3})?|1(\.0{0,3})?", given) else 0.0
    return found


def takes_gzip(request: Request) -> bool:
    """Whether the answer may be compressed."""
    return weights(request.headers.get("accept-encoding", "")).get("gzip", 0.0) > 0


async def wait_seconds(
    request: Request,
    _: Annotated[str | None, Header(alias="Prefer", description="`wait=N` waits up to N seconds.")] = None,
) -> float:
    """N of `Prefer: wait=N` (RFC 7240), at most LONGEST_WAIT; 0 without one. Several headers count as one with commas."""
    preferred = ",".join(request.headers.getlist("prefer"))
    matched = re.search(r"(?:^|[,;\s])wait=(\d{1,6}(?:\.\d{1,6})?)", preferred, re.IGNORECASE)
    return min(float(matched.group(1)), LONGEST_WAIT) if matched else 0.0


async def last_event(
    last_event_id: Annotated[str | None, Header(description="The stream goes on after the event of that id.")] = None,
) -> int:
    """The number in `Last-Event-ID`; 0 without one."""
    return int(last_event_id) if last_event_id and re.fullmatch(r"\d{1,18}", last_event_id) else 0


WaitSeconds = Annotated[float, Depends(wait_seconds)]
LastEvent = Annotated[int, Depends(last_event)]
