"""A finished or unfinished analysis or study that a request names, and responses that are read from its result."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

import anyio
from fastapi import Request
from pydantic import BaseModel
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from ..errors import NotReady
from ..jobs import JobKind
from ..server.service import Service
from ..store import Stored
from ..store.map_file import Corrupt
from .http.compression import LARGE_JSON, compress
from .http.conditional import NO_CACHE, question_of, respond_with_etag
from .middleware.access import Visitor

T = TypeVar("T")
# How long a request waits for a corrupt result to be computed again.
RECOMPUTE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Resource:
    """An analysis or study that the visitor may read, and the request that names it."""

    request: Request
    service: Service
    visitor: Visitor
    kind: JobKind
    id: str

    async def read(self, reader: Callable[[Stored], T]) -> T:
        """Call `reader` on the result in a thread. A corrupt result is computed again first. Raises Unknown, NotReady or ClientDisconnect."""
        return await while_connected(self.request, self._read(reader))

    async def _read(self, reader: Callable[[Stored], T]) -> T:
        for _ in range(2):
            try:
                return await self.service.limiters.results.run(lambda: self.service.read(self.id, self.kind, reader))
            except Corrupt:
                await self.service.watcher.ended(self.id, RECOMPUTE_SECONDS)
        raise NotReady("The stored result was corrupt and is being computed again. Try again in a moment.")

    async def respond(self, format_: str, make: Callable[[Stored], Response], *, computed: bool = True) -> Response:
        """Respond with what `make` returns for the result, or with 304 if the client has it. Raises as read() does.

        `computed`: whether the response takes longer than reading it from a disk; otherwise it is cached only if the store is remote.
        """
        question, if_none_match = question_of(self.request.scope), self.request.headers.get("if-none-match", "")

        def respond(stored: Stored) -> Response:
            cache = self.service.cache if computed or stored.remote else NO_CACHE
            response = respond_with_etag(stored, question, format_, if_none_match, make, cache)
            return compress(response, self.request, LARGE_JSON, level=1) if format_ == "json" else response

        return await self.read(respond)

    async def respond_json(self, make: Callable[[Stored], BaseModel]) -> Response:
        """Respond with the JSON of what `make` returns for the result. Otherwise as respond()."""
        return await self.respond(
            "json", lambda stored: Response(make(stored).model_dump_json(), media_type="application/json")
        )


async def while_connected(request: Request, answer: Awaitable[T]) -> T:
    """Await an answer unless the client disconnects, which cancels it: threads that call `anyio.from_thread.check_cancelled` end there. Raises ClientDisconnect."""
    with anyio.CancelScope() as scope:

        async def cancel() -> None:
            while (await request.receive())["type"] != "http.disconnect":
                pass
            scope.cancel()

        watching = asyncio.create_task(cancel())
        try:
            return await answer
        finally:
            watching.cancel()
    raise ClientDisconnect
