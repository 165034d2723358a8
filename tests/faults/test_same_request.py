"""Concurrent equal requests, of which the first is closed: the analysis is computed once and all others get it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence

import httpx
import pytest

from tests.support.extent import extent, mostly_long
from tests.support.server import API, Server

pytestmark = pytest.mark.parametrize(
    "server", mostly_long(["embedded", "cluster"], "cluster"), indirect=True, scope="session"
)
CLIENTS = extent(100, 30)
BODY = {"model": "bert", "text": "A hundred clients ask the same, and the first hangs up."}


def hang_up(server: Server, body: dict[str, str]) -> None:
    """Send a request and close the connection before the response."""
    request = httpx.Request(
        "POST", f"http://{server.url}{API}/analyses", json=body, headers={**server.headers, "Prefer": "wait=50"}
    )
    head = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
    host, port = server.url.split(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(f"POST {API}/analyses HTTP/1.1\r\n{head}\r\n".encode() + request.content)


async def ask(servers: Sequence[Server], body: dict[str, str], clients: int = CLIENTS) -> list[httpx.Response]:
    """Send a number of requests at once, to these servers in turn."""
    limits = httpx.Limits(max_connections=clients)
    async with httpx.AsyncClient(
        timeout=120, limits=limits, trust_env=False, verify=False, headers=servers[0].headers
    ) as client:
        asking = (
            client.post(
                f"http://{servers[number % len(servers)].url}{API}/analyses", json=body, headers={"Prefer": "wait=50"}
            )
            for number in range(clients)
        )
        return await asyncio.gather(*asking)


def test_computed_once(server: Server) -> None:
    """There is one id and one forward pass, and every client gets the result from any server."""
    passes = server.settled("forward_passes_total")
    hang_up(server, BODY)
    answers = asyncio.run(ask(getattr(server, "servers", [server]), BODY))
    assert {(answer.status_code, answer.json()["status"]) for answer in answers} == {(200, "done")}
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert server.metric("forward_passes_total") == passes + 1
