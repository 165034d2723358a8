"""Large responses: sent in pieces, and counted against a limit until the last byte is sent."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...core.streams import PIECE
from ...server.limiters import MemoryLimiter


class LargeResponseMiddleware:
    """ASGI middleware inside the access check. `room` limits the bytes of large responses."""

    def __init__(self, app: ASGIApp, *, room: MemoryLimiter) -> None:
        self._app, self._room = app, room

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._room.request():
            await self._app(scope, receive, _split(send))


def _split(send: Send) -> Send:
    """Send at most PIECE bytes at a time: uvicorn copies a body that it is given at once, and does not wait for the client to read it."""

    async def send_pieces(message: Message) -> None:
        rest = memoryview(message.get("body", b""))
        if len(rest) > PIECE:
            while len(rest) > PIECE:
                await send({**message, "body": bytes(rest[:PIECE]), "more_body": True})
                rest = rest[PIECE:]
            message = {**message, "body": bytes(rest)}
        await send(message)

    return send_pieces
