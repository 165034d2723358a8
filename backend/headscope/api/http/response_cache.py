"""A cache of recent responses in this process, and routes that use it for responses about finished results."""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine, Hashable
from typing import Any

from cachetools import LRUCache
from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.types import Scope

from ...server.service import Service
from ..middleware.access import Visitor

MAX_BYTES = 32 * 1024 * 1024
# Largest request (path, query and HEADERS) and response of a CachedRoute that are cached, in bytes.
MAX_REQUEST, MAX_RESPONSE = 1000, 1024 * 1024
HEADERS = frozenset({b"accept", b"accept-encoding", b"if-none-match"})
# Memory of an entry beside its body: headers, the request, and the fingerprints of the files.
ENTRY_BYTES = 3 * 1024


class ResponseCache:
    """A thread-safe LRU cache, bounded by the total size of its entries. A key names everything that the response depends on."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._lock = threading.Lock()
        self._entries: LRUCache[Hashable, tuple[Any, int]] = LRUCache(max_bytes, getsizeof=lambda entry: entry[1])

    def get(self, key: Hashable) -> Any | None:
        """Return the cached response, or None."""
        with self._lock:
            return self._entries.get(key, (None, 0))[0]

    def put(self, key: Hashable, response: Any, size: int) -> None:
        """Cache a response of `size` bytes, unless it is larger than the cache."""
        with self._lock:
            if size <= self._entries.maxsize:
                self._entries[key] = response, size


class CachedRoute(APIRoute):
    """A route below an analysis or study. GET responses are kept while the files of the result are unchanged, and sent again to any visitor who may read it.

    Only a result whose job is done is final: a job that has stored its result may still be cancelled.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def respond(request: Request) -> Response:
            service: Service = request.app.state.service
            cache: ResponseCache = request.app.state.response_cache
            visitor: Visitor = request.scope["visitor"]
            id_, question = request.path_params.get("id", ""), _question_of(request.scope)
            stored = service.results.get_cached(id_) if question else None
            if stored is None:
                return await handle(request)
            key = stored.digest, stored.fingerprint, question
            cached: Response | None = cache.get(key)
            if cached is not None and await visitor.may_read(service, id_):
                return cached
            response = await handle(request)
            size = len(getattr(response, "body", b""))  # 0 if it is streamed
            unchanged = response.status_code == 200 and service.results.get_cached(id_) == stored
            if unchanged and 0 < size <= MAX_RESPONSE and service.is_final(stored):
                cache.put(key, response, size + ENTRY_BYTES)
            return response

        return respond


def _question_of(scope: Scope) -> Hashable:
    """Return what the response to a GET request depends on, beside the result; None if that is too long, or the client has a response already."""
    headers = [pair for pair in scope["headers"] if pair[0] in HEADERS]
    size = len(scope["path"]) + len(scope["query_string"]) + sum(len(value) for _, value in headers)
    if scope["method"] != "GET" or size > MAX_REQUEST or any(name == b"if-none-match" for name, _ in headers):
        return None
    return scope["path"], scope["query_string"], *headers
