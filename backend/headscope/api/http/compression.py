"""Compressed responses."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute

from .negotiation import accepts_gzip

# Smaller bodies fit into the packets that are sent anyway.
MIN_BYTES = 1000


def compress(response: Response, request: Request, least: int = MIN_BYTES, level: int = 6) -> Response:
    """Compress the body of a response, in place, if it has at least so many bytes and the client accepts gzip."""
    response.headers["Vary"] = "Accept-Encoding"
    if len(response.body) >= least and accepts_gzip(request):
        response.body = gzip.compress(response.body, level, mtime=0)
        response.headers["Content-Encoding"] = "gzip"
        response.headers["Content-Length"] = str(len(response.body))
    return response


class CompressedRoute(APIRoute):
    """A route whose responses are compressed for clients that accept gzip: for long lists of text, which shrink to a quarter."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def compressed(request: Request) -> Response:
            return compress(await handle(request), request)

        return compressed
