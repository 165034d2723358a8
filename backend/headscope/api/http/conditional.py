"""Responses read from finished results. Results never change, so each response has an ETag and may be cached."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from fastapi import Request
from pydantic import BaseModel
from starlette.responses import Response
from starlette.types import Scope

from ..._version import __version__
from ...jobs import JobKind
from ...server.service import Service
from ...store import Cache, Stored
from ..dependencies import READS, read
from ..middleware.reads import record_read

IMMUTABLE = {"Cache-Control": "private, max-age=31536000, immutable", "Vary": "Accept"}
NO_CACHE = Cache(None)
# The `responses` of routes that call `serve_result`, beside their own.
CONDITIONAL = READS | {304: {"description": "The client has the current response (If-None-Match)."}}


async def serve_result(
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
    """Respond with what `make` returns for a finished analysis or study, or with 304 if the client has it. Raises as read() does.

    `computed`: whether the response takes longer than reading it from a disk; otherwise it is cached only if the store is remote.
    `whole`: whether the route returns the response unchanged; otherwise it is not kept in this process.
    """
    question, if_none_match = question_of(request.scope), request.headers.get("if-none-match", "")

    def respond(stored: Stored) -> Response:
        cache = service.cache if computed or stored.remote else NO_CACHE
        response = respond_with_etag(stored, question, format_, if_none_match, make, cache)
        record_read(request, id_, stored, response if whole and response.status_code == 200 else None)
        return response

    return await read(service, id_, respond, kind)


async def serve_json(
    request: Request, service: Service, id_: str, make: Callable[[Stored], BaseModel], kind: JobKind = "analysis"
) -> Response:
    """Respond with the JSON of what `make` returns for a finished analysis or study. Otherwise as serve_result."""

    def respond(stored: Stored) -> Response:
        return Response(make(stored).model_dump_json(), media_type="application/json")

    return await serve_result(request, service, id_, "json", respond, kind=kind)


def question_of(scope: Scope) -> str:
    """Return path and query of a request without its share key: what is requested, regardless of the client."""
    parts = scope["query_string"].decode("latin-1").split("&")
    return f"{scope['path']}\n{'&'.join(part for part in parts if not part.startswith('share='))}"


def respond_with_etag(
    stored: Stored,
    question: str,
    format_: str,
    if_none_match: str,
    make: Callable[[Stored], Response],
    cache: Cache = NO_CACHE,
) -> Response:
    """Return the cached response, the response of `make`, or 304 if `if_none_match` contains its ETag.

    The ETag depends on the question, every byte of the result, the format, and the version of Headscope.
    """
    key = "\n".join((__version__, stored.digest, question, format_))
    # Weak, because safetensors may order tensors differently each time.
    tag = f'"{hashlib.sha256(key.encode()).hexdigest()[:32]}"'
    headers = {**IMMUTABLE, "ETag": f"W/{tag}"}
    if tag in if_none_match:
        return Response(status_code=304, headers=headers)
    cached = cache.get(key)
    if cached is not None:
        media_type, body = cached
        return Response(body, media_type=media_type, headers=headers)
    response = make(stored)
    cache.put(key, response.media_type or "", bytes(response.body))
    response.raw_headers += [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    return response
