"""The deadline for readers, on a server in this process whose deadline is shorter."""

from __future__ import annotations

import asyncio
import socket
from functools import partial
from typing import Any, cast

import pytest
import uvicorn

from headscope.api.http import connection
from headscope.api.http.connection import Connection

PIECE = b"a" * 256 * 1024
PIECES = 64


async def large(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Answer with 16 MiB; whether the client is still there at the end is added to `scope["state"]["ends"]`."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for _ in range(PIECES):
        await send({"type": "http.response.body", "body": PIECE, "more_body": True})
    await send({"type": "http.response.body", "body": b""})
    scope["state"]["ends"].put_nowait((await receive())["type"])


@pytest.mark.parametrize("reads", [True, False])
def test_readers_that_stop_are_disconnected(monkeypatch: pytest.MonkeyPatch, reads: bool) -> None:
    """A reader that takes its answer slowly gets all of it; one that stops is disconnected."""
    monkeypatch.setattr(connection, "READ_SECONDS", 0.5)
    received = asyncio.run(_received(reads))
    assert (received > PIECES * len(PIECE)) == reads


async def _received(reads: bool) -> int:
    protocol = cast("type[asyncio.Protocol]", partial(Connection, limit=10))
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, len(PIECE))
    server = uvicorn.Server(uvicorn.Config(cast("Any", large), http=protocol, lifespan="off", log_config=None))
    serving = asyncio.create_task(server.serve([listening]))
    while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0.01)
    server.lifespan.state["ends"] = ends = asyncio.Queue[str]()
    reader, writer = await asyncio.open_connection(*listening.getsockname(), limit=1024)
    writer.write(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    total = 0
    while reads and (data := await reader.read(1024 * 1024)):
        total += len(data)
    async with asyncio.timeout(30):
        assert await ends.get() == "http.disconnect"
    writer.close()
    server.should_exit = True
    await serving
    return total
