"""Limits on the size, speed and memory of request bodies. A body is received completely before its route runs; an uploaded file is streamed to its route."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...errors import HeadscopeError, RequestTimeout
from ...server.limiters import MemoryLimiter
from ...settings import Settings
from ..http.json_structure import check_structure
from ..problems import handle_error, handle_http_error
from .metrics import PREFIX

# Largest body, in bytes, of a route that BodyLimits does not name.
OTHER_BYTES = 64 * 1024
SIGN_IN_BYTES = 1024
CODE_BYTES = 8 * 1024  # of an identity provider, and what comes with it
EFFECT_BYTES = 512 * 1024
# Time for a body to arrive: a base, and one second per received bytes.
BODY_SECONDS = 10.0
BYTES_PER_SECOND = 16 * 1024
# Larger bodies are checked in a thread, one at a time.
QUICK_BYTES = 64 * 1024
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


class BodyLimits:
    """The largest request body in bytes, by path. `files` are the paths that accept an unparsed file."""

    files = frozenset({f"{PREFIX}/datasets"})

    def __init__(self, settings: Settings) -> None:
        self._routes = {
            f"{PREFIX}/session": SIGN_IN_BYTES,
            f"{PREFIX}/session/oidc": SIGN_IN_BYTES,
            f"{PREFIX}/session/oidc/code": CODE_BYTES,
            f"{PREFIX}/analyses": settings.image_body_bytes,
            f"{PREFIX}/analyses/batch": settings.image_body_bytes,
            f"{PREFIX}/studies": settings.body_bytes,
            f"{PREFIX}/datasets": settings.dataset_bytes,
        }

    def largest(self, path: str) -> int:
        """Return the largest body of a request to this path, in bytes."""
        return self._routes.get(path, EFFECT_BYTES if path.endswith("/effects") else OTHER_BYTES)


class BodyLimitMiddleware:
    """ASGI middleware inside the access check: bodies are only read from known visitors."""

    def __init__(self, app: ASGIApp, *, limits: BodyLimits, memory: MemoryLimiter) -> None:
        self._app, self._limits, self._memory = app, limits, memory
        self._checking = asyncio.Semaphore(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in SAFE_METHODS:
            await self._app(scope, receive, send)
            return
        with self._memory.request():
            try:
                receive = await self._receive_body(scope, receive)
            except (HeadscopeError, HTTPException) as error:
                handle = handle_error if isinstance(error, HeadscopeError) else handle_http_error
                response = await handle(Request(scope), error)
                await response(scope, receive, send)
            except ClientDisconnect:
                pass
            else:
                await self._app(scope, receive, send)

    async def _receive_body(self, scope: Scope, receive: Receive) -> Receive:
        """Return the application's `receive`: it replays a body that was received and checked, or streams a file.

        Raises RequestTimeout, TooManyRequests, ServerBusy, InvalidRequest, HTTPException if the body is too large, or ClientDisconnect.
        """
        body = _Body(receive, self._limits.largest(scope["path"]))
        if scope["path"] in self._limits.files:
            return body.receive
        pieces = []
        async for piece in body:
            self._memory.take(len(piece))
            pieces.append(piece)
        received = b"".join(pieces)
        await self._check(received)
        return _replay(received, receive)

    async def _check(self, body: bytes) -> None:
        if len(body) <= QUICK_BYTES:
            check_structure(body)
            return
        async with self._checking:
            await asyncio.to_thread(check_structure, body)


class _Body:
    """A body that is being received, limited in size and by a deadline."""

    def __init__(self, receive: Receive, largest: int) -> None:
        self._receive, self._largest = receive, largest
        self._count, self._waited, self._complete = 0, 0.0, False

    async def receive(self) -> Message:
        """Return the next message. Raises RequestTimeout, or HTTPException if the body is too large."""
        if self._complete:  # the next message is the disconnect
            return await self._receive()
        started = time.monotonic()
        try:
            async with asyncio.timeout(BODY_SECONDS + self._count / BYTES_PER_SECOND - self._waited):
                message = await self._receive()
        except TimeoutError:
            raise RequestTimeout(
                "The request body arrived too slowly. Send it again over a faster connection."
            ) from None
        self._waited += time.monotonic() - started
        self._count += len(message.get("body", b""))
        self._complete = not message.get("more_body", False)
        if self._count > self._largest:  # only a body without Content-Length gets here
            raise HTTPException(413)
        return message

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while not self._complete:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            yield message["body"]


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that delivers a received body, then the messages that follow it."""
    unread = [body]

    async def replay() -> Message:
        return {"type": "http.request", "body": unread.pop(), "more_body": False} if unread else await receive()

    return replay
