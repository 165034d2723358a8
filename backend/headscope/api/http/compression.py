"""Compressed responses: zstd, or gzip, as the client accepts them."""

from __future__ import annotations

import gzip
import sys
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute

from .negotiation import Coding, choose_coding

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

# Smaller bodies fit into the packets that are sent anyway.
MIN_BYTES = 1000
# Smaller JSON documents of one analysis or study are sent as they are. That of 2,048 tokens is larger than all thumbnails.
LARGE_JSON = 16 * 1024
# At level 1, zstd makes documents and thumbnails about as small as gzip does at level 6, in at most a fifth of the time.
ZSTD_LEVEL = 1


def compress(response: Response, request: Request, least: int = MIN_BYTES, level: int = 6) -> Response:
    """Compress the body of a response, in place, if it has at least so many bytes and the client accepts a coding. `level` is that of gzip.

    ETags of compressed responses must be weak: all codings of a response have the same.
    """
    response.headers.add_vary_header("Accept-Encoding")
    coding = choose_coding(request)
    if coding is None or len(response.body) < least or "Content-Encoding" in response.headers:
        return response
    response.body = _encode(bytes(response.body), coding, level)
    response.headers["Content-Encoding"] = coding
    response.headers["Content-Length"] = str(len(response.body))
    return response


def _encode(body: bytes, coding: Coding, level: int) -> bytes:
    return zstd.compress(body, ZSTD_LEVEL) if coding == "zstd" else gzip.compress(body, level, mtime=0)


class CompressedRoute(APIRoute):
    """A route whose responses are compressed for clients that accept it: for long lists of text, which shrink to a quarter."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def compressed(request: Request) -> Response:
            return compress(await handle(request), request)

        return compressed
