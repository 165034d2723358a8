"""Responses read from finished results. Results never change, so each response has an ETag and may be cached."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from starlette.responses import Response, StreamingResponse
from starlette.types import Scope

from ..._version import __version__
from ...errors import NotReady, QueueFull
from ...store import Cache, Stored
from ..error_responses import raises

IMMUTABLE = {"Cache-Control": "private, max-age=31536000, immutable", "Vary": "Accept"}
NO_CACHE = Cache(None)
# The `responses` of routes that read a result, and of those that respond conditionally.
READS = raises(NotReady, QueueFull)
CONDITIONAL = READS | {304: {"description": "The client has the current response (If-None-Match)."}}


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
    if tag in if_none_match or if_none_match.strip() == "*":
        return Response(status_code=304, headers=headers)
    cached = cache.get(key)
    if cached is not None:
        kept, body = cached
        return Response(body, headers={**kept, **headers})
    response = make(stored)
    if not isinstance(response, StreamingResponse):
        kept = {name: value for name, value in response.headers.items() if name != "content-length"}
        cache.put(key, kept, response.body)
    response.raw_headers += [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    return response
