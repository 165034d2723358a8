"""Large answers on their way: in pieces, so that the server waits for the reader, and counted until the last one is sent."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...core.streams import PIECE
from ...server.limiters import MemoryLimiter


class LargeResponses:
    """ASGI middleware, inside the access check."""

    def __init__(self, app: ASGIApp, *, room: MemoryLimiter) -> None:
        self._app, self._room = app, room

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._room.answer():
            await self._app(scope, receive, _in_pieces(send))


def _in_pieces(send: Send) -> Send:
    """Send no more than PIECE bytes at a time: what the server takes at once it copies, and returns before any of it is sent."""

    async def send_pieces(message: Message) -> None:
        rest = memoryview(message.get("body", b""))
        if len(rest) > PIECE:
            while len(rest) > PIECE:
                await send({**message, "body": bytes(rest[:PIECE]), "more_body": True})
                rest = rest[PIECE:]
            message = {**message, "body": bytes(rest)}
        await send(message)

    return send_pieces
