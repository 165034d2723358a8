"""Answers that never change, because results do not: each has an ETag, and those read often stay in the hot cache."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from urllib.parse import urlencode

from fastapi import Request
from starlette.responses import Response

from .._version import __version__
from ..jobs import JobKind
from ..runtime import Service, read_or_recompute
from ..store import Hot, Stored
from .again import keep
from .deps import read

FOREVER = {"Cache-Control": "private, max-age=31536000, immutable", "Vary": "Accept"}


async def fixed(
    request: Request,
    service: Service,
    id_: str,
    format_: str,
    make: Callable[[Stored], Response],
    *,
    computed: bool = True,
    whole: bool = True,
    kind: JobKind = "analysis",
) -> Response:
    """What `make` answers from a finished analysis or study, or has answered before; 304 to whoever has that already. Raises as read() does.

    What is not computed but only read comes from a disk as fast as from the cache, and is kept there only if the store is far. An answer that is not the
    `whole` one, for the route does something to it, is asked of the route each time.
    """
    asked, had = _asked(request), request.headers.get("if-none-match", "")

    def find(stored: Stored) -> Response:
        key = "\n".join((__version__, stored.digest, asked, format_))
        # Weak: safetensors puts names into any order.
        tag = f'"{hashlib.sha256(key.encode()).hexdigest()[:32]}"'
        headers = {**FOREVER, "ETag": f"W/{tag}"}
        if tag in had:
            return Response(status_code=304, headers=headers)
        hot = service.hot if computed or stored.far else Hot(None)
        found = hot.get(key)
        if found is not None:
            media, body = found
            return Response(body, media_type=media, headers=headers)
        response = make(stored)
        hot.put(key, response.media_type or "", bytes(response.body))
        response.headers.update(headers)
        return response

    response = await read(service, id_, find, kind)
    if whole:
        keep(request, id_, lambda: read_or_recompute(service, id_, find, kind))
    return response


def _asked(request: Request) -> str:
    """The question. An answer depends on that, on every byte of the result, on the format, and on who puts it into words."""
    asked = urlencode([pair for pair in request.query_params.multi_items() if pair[0] != "share"])
    return f"{request.scope['path']}\n{asked}"
