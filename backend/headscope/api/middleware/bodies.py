"""Request bodies: how large, how slow and how many at once they may be. Routes are asked once a body has arrived, or read it piece by piece if it is a file."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...errors import HeadscopeError, RequestTimeout
from ...settings import Settings
from ..http.json_structure import check_structure
from ..problems import failure, refusal
from .access import Visitor
from .memory import MIB, BodyMemory, Reservation

# Bodies of routes that are not named in BodyLimits, in bytes.
OTHER_BYTES = 64 * 1024
SIGN_IN_BYTES = 1024
# A body has so many seconds, and one more for each so many bytes that have arrived.
BODY_SECONDS = 10.0
BYTES_PER_SECOND = 16 * 1024
# Bytes of bodies in memory, in total and per visitor.
BODIES = (128 * MIB, 64 * MIB)
# A body up to so many bytes is checked at once, a larger one in a thread, one after the other.
QUICK_BYTES = 64 * 1024
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """The largest body of a request, in bytes, by path. `files` are the paths that take a file as it is."""

    routes: Mapping[str, int]
    files: frozenset[str]

    @classmethod
    def of(cls, settings: Settings, prefix: str) -> BodyLimits:
        """The limits of all routes that take a body."""
        routes = {
            "session": SIGN_IN_BYTES,
            "analyses": settings.image_body_bytes,
            "analyses/batch": settings.image_body_bytes,
            "studies": settings.body_bytes,
            "datasets": settings.dataset_bytes,
        }
        return cls({f"{prefix}/{path}": most for path, most in routes.items()}, frozenset({f"{prefix}/datasets"}))

    def most(self, path: str) -> int:
        """The largest body of a request to this path."""
        return self.routes.get(path, OTHER_BYTES)


class BodyLimitMiddleware:
    """ASGI middleware inside the access check: no body is read before it is known whose it is."""

    def __init__(self, app: ASGIApp, *, limits: BodyLimits) -> None:
        self._app, self._limits = app, limits
        self._bodies = BodyMemory(*BODIES)
        self._checking = asyncio.Semaphore(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        visitor: Visitor | None = scope["visitor"]
        with Reservation(self._bodies, visitor.client if visitor else "") as memory:
            try:
                receive = await self._received(scope, receive, memory)
            except (HeadscopeError, HTTPException) as error:
                respond = failure if isinstance(error, HeadscopeError) else refusal
                answer = await respond(Request(scope), error)
                await answer(scope, receive, send)
            except ClientDisconnect:
                pass
            else:
                await self._app(scope, receive, send)

    async def _received(self, scope: Scope, receive: Receive, memory: Reservation) -> Receive:
        """What the application receives: a body that has arrived and been checked, or a file as it comes.

        Raises RequestTimeout, TooManyRequests, ServerBusy, InvalidRequest, HTTPException for a body that is too large, or ClientDisconnect.
        """
        if scope["method"] in SAFE_METHODS:
            return receive
        arriving = _Body(receive, self._limits.most(scope["path"]))
        if scope["path"] in self._limits.files:
            return arriving.receive
        pieces = []
        async for piece in arriving:
            memory.take(len(piece))
            pieces.append(piece)
        body = b"".join(pieces)
        await self._check(body)
        return _replay(body, receive)

    async def _check(self, body: bytes) -> None:
        if len(body) <= QUICK_BYTES:
            check_structure(body)
            return
        async with self._checking:
            await asyncio.to_thread(check_structure, body)


class _Body:
    """A body as it arrives: at most `most` bytes, and no slower than a body may be."""

    def __init__(self, receive: Receive, most: int) -> None:
        self._receive, self._most = receive, most
        self._count, self._waited, self._whole = 0, 0.0, False

    async def receive(self) -> Message:
        """Return the next message. Raises RequestTimeout, or HTTPException for a body that is too large."""
        if self._whole:  # what follows is the end of the connection
            return await self._receive()
        begun = time.monotonic()
        try:
            async with asyncio.timeout(BODY_SECONDS + self._count / BYTES_PER_SECOND - self._waited):
                message = await self._receive()
        except TimeoutError:
            raise RequestTimeout(
                "The request's body arrived too slowly. Send it again over a faster connection."
            ) from None
        self._waited += time.monotonic() - begun
        self._count += len(message.get("body", b""))
        self._whole = not message.get("more_body", False)
        if self._count > self._most:  # of a body that did not say its length
            raise HTTPException(413)
        return message

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while not self._whole:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            yield message["body"]


def _replay(body: bytes, receive: Receive) -> Receive:
    """Receive a body that has arrived already, and then what comes after it."""
    waiting = [body]

    async def replayed() -> Message:
        return {"type": "http.request", "body": waiting.pop(), "more_body": False} if waiting else await receive()

    return replayed
