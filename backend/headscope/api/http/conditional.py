"""Answers that never change, because results do not: each has an ETag, and those read often stay in memory and in the hot cache."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from fastapi import Request
from starlette.responses import Response
from starlette.types import Scope

from ..._version import __version__
from ...jobs import JobKind
from ...server.service import Service
from ...store import Cache, Stored
from ..dependencies import READS, read
from ..middleware.reads import found

FOREVER = {"Cache-Control": "private, max-age=31536000, immutable", "Vary": "Accept"}
NO_CACHE = Cache(None)
# What routes of fixed answers answer beside them.
FIXED = READS | {304: {"description": "The answer is the one of this ETag."}}


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

    What is not computed but only read comes from a disk as fast as from the cache, and is kept there only if the store is far.
    An answer that is not the `whole` one, for the route does something to it, is asked of the route each time.
    """
    question, had = question_of(request.scope), request.headers.get("if-none-match", "")

    def find(stored: Stored) -> Response:
        hot = service.cache if computed or stored.remote else NO_CACHE
        answer = named(stored, question, format_, had, make, hot)
        found(request, id_, stored, answer if whole and answer.status_code == 200 else None)
        return answer

    return await read(service, id_, find, kind)


def question_of(scope: Scope) -> str:
    """What is asked, by whomever: the path and the query without a share key."""
    parts = scope["query_string"].decode("latin-1").split("&")
    return f"{scope['path']}\n{'&'.join(part for part in parts if not part.startswith('share='))}"


def named(
    stored: Stored,
    question: str,
    format_: str,
    had: str,
    make: Callable[[Stored], Response],
    hot: Cache = NO_CACHE,
) -> Response:
    """The answer to a question, from the cache if it is there, with its ETag; 304 if that is among those that the reader `had`.

    It depends on what was asked, on every byte of the result, on the format, and on who puts it into words.
    """
    key = "\n".join((__version__, stored.digest, question, format_))
    # Weak: safetensors puts names into any order.
    tag = f'"{hashlib.sha256(key.encode()).hexdigest()[:32]}"'
    headers = {**FOREVER, "ETag": f"W/{tag}"}
    if tag in had:
        return Response(status_code=304, headers=headers)
    kept = hot.get(key)
    if kept is not None:
        media, body = kept
        return Response(body, media_type=media, headers=headers)
    response = make(stored)
    hot.put(key, response.media_type or "", bytes(response.body))
    response.raw_headers += [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    return response
