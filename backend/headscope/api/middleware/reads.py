"""A cache in front of the routes for repeated GET requests to a finished analysis or study.

A hit needs no routing, validation, thread or job lookup. Routes declare what may be cached. An entry belongs to a result and the state of its files when it
was read, so it is invalid once any of them changes: deletions take effect at once on every server, and damage is detected. Everything else is left to
the routes, including all errors.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from cachetools import LRUCache
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ...errors import HeadscopeError
from ...server.service import Service
from ...store import Stored
from ...store.map_file import Corrupt
from ..http.response_cache import ResponseCache
from .access import Visitor

RESULT = re.compile(r"/api/v1/(analyses|studies)/([0-9a-f]{32})(/.*)?")
# Pairs of a visitor and a result that are remembered.
MAX_READERS = 10_000
# Largest request (path, query and headers, in characters) and response (in bytes) that are cached.
MAX_REQUEST, MAX_RESPONSE = 1000, 1024 * 1024
# Memory of an entry beside its body: headers, the request, and the fingerprints of the files.
ENTRY_BYTES = 3 * 1024
# Headers that a response depends on.
REQUEST_HEADERS = frozenset({b"accept", b"accept-encoding", b"if-none-match"})
# Headers that a 304 has in common with the full response.
NOT_MODIFIED_HEADERS = ("Cache-Control", "Vary", "ETag")


class ResultReader(Protocol):
    """A function that reads a response from a result. Unless `wait` is true, it raises BlockingIOError instead of waiting for a disk or computing for long."""

    def __call__(self, stored: Stored, *, wait: bool) -> Response:
        """Return the response."""


class CompletedRead(NamedTuple):
    """What a route has read: the result, the response if it may be cached, and the route."""

    id: str
    stored: Stored
    response: Response | None
    route: Any


class ReadRequest(NamedTuple):
    """A GET request to an analysis or study: `part` is the rest of its path, `key` everything that the response depends on."""

    kind: str
    id: str
    part: str
    accept: str
    if_none_match: str
    key: tuple[Any, ...]


def record_read(request: Request, id_: str, stored: Stored, response: Response | None) -> None:
    """Declare, in a route, that `response` may be sent again for the same request while the result is unchanged; None: may not be cached."""
    request.scope["headscope.read"] = CompletedRead(id_, stored, response, request.scope["route"])


class ReadCacheMiddleware:
    """ASGI middleware inside the access check. `find_reader` recognises plain requests, which need no earlier response; they belong to `route`."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        service: Service,
        cache: ResponseCache,
        find_reader: Callable[[Scope, ReadRequest], ResultReader | None],
        route: Any,
    ) -> None:
        self._app, self._service, self._cache = app, service, cache
        self._find_reader, self._route = find_reader, route
        self._readers: LRUCache[tuple[Visitor, str, str], str] = LRUCache(MAX_READERS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = _parse_request(scope)
        response = await self._respond(scope, request) if request else None
        if response is not None:
            await response(scope, receive, send)
            return
        await self._app(scope, receive, send)
        if request and "headscope.read" in scope:
            await self._record(scope["visitor"], request, scope["headscope.read"])

    async def _record(self, visitor: Visitor, request: ReadRequest, read: CompletedRead) -> None:
        """Remember the visitor and cache the response. A job that is still running may be cancelled, so its result is not trusted yet."""
        reader = (visitor, request.kind, read.id)
        if self._readers.get(reader) != read.stored.digest:
            with suppress(HeadscopeError):
                if await asyncio.to_thread(self._service.is_settled, read.id):
                    self._readers[reader] = read.stored.digest
        if read.response is not None:
            self._put(read.stored, request, read.response, read.route)

    def _put(self, stored: Stored, request: ReadRequest, response: Response, route: Any) -> None:
        if stored.fingerprint is not None and len(response.body) <= MAX_RESPONSE:
            key = (stored.digest, stored.fingerprint, request.key)
            self._cache.put(key, (response, route), len(response.body) + ENTRY_BYTES)

    async def _respond(self, scope: Scope, request: ReadRequest) -> Response | None:
        visitor: Visitor = scope["visitor"]
        digest = self._readers.get((visitor, request.kind, request.id))
        if digest is None:
            return None
        try:
            if not visitor.opens(request.id) and not await asyncio.to_thread(
                visitor.may_read, self._service.database, request.id
            ):
                return None
            stored = self._service.results.get_cached(request.id)
            if stored is None or stored.digest != digest:
                return None
            response = await self._read(stored, request, scope)
        except (HeadscopeError, Corrupt):  # the route reports the error
            return None
        tag = response.headers.get("etag", "") if response and request.if_none_match else ""
        if response and tag and tag.removeprefix("W/") in request.if_none_match:
            return Response(status_code=304, headers={name: response.headers[name] for name in NOT_MODIFIED_HEADERS})
        return response

    async def _read(self, stored: Stored, request: ReadRequest, scope: Scope) -> Response | None:
        """Return the cached response, or read that of a plain request, in this thread if it need not wait for a disk."""
        cached = self._cache.get((stored.digest, stored.fingerprint, request.key))
        if cached is not None:
            response: Response
            response, scope["route"] = cached
            return response
        reader = self._find_reader(scope, request)
        if reader is None:
            return None
        scope["route"] = self._route
        try:
            response = reader(stored, wait=False)
        except BlockingIOError:
            response = await self._service.limiters.results.run(lambda: reader(stored, wait=True))
        self._put(stored, request, response, self._route)
        return response


def _parse_request(scope: Scope) -> ReadRequest | None:
    """Return a request to an analysis or study; None if it is too long for the cache or repeats a header."""
    matched = RESULT.fullmatch(scope["path"]) if scope["type"] == "http" and scope["method"] == "GET" else None
    if matched is None:
        return None
    path, query = scope["path"], scope["query_string"]
    pairs = [pair for pair in scope["headers"] if pair[0] in REQUEST_HEADERS]
    headers = dict(pairs)
    if_none_match = headers.pop(b"if-none-match", b"").decode("latin-1")
    size = len(path) + len(query) + sum(map(len, headers.values()))
    if len({name for name, _ in pairs}) < len(pairs) or size > MAX_REQUEST:
        return None
    accept, encoding = (headers.get(name, b"") for name in (b"accept", b"accept-encoding"))
    key = (path, query, accept, encoding)
    return ReadRequest(matched[1], matched[2], matched[3] or "", accept.decode("latin-1"), if_none_match, key)
