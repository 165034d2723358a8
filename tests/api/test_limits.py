"""Limits on the size, duration and number of bodies, heads and connections."""

from __future__ import annotations

import logging
import resource
import socket
import time
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from headscope.api.http.connection import HEAD_SECONDS, LINGER_SECONDS, max_connections
from headscope.api.middleware.bodies import BODY_SECONDS, EFFECT_BYTES, OTHER_BYTES, SIGN_IN_BYTES
from headscope.logs import PROVOKED, _OncePerSecond
from tests.api.test_bad_input import check_problem
from tests.api.test_metrics import by_name
from tests.api.users import Users
from tests.support.server import API, Server, eventually
from tests.support.variants import variants

JSON = {"Content-Type": "application/json"}
ROUTE = f"{API}/analyses/{{id}}/maps/{{lens}}"
HEAD = b"POST /api/v1/analyses HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"


@variants(
    ("path", "limit"),
    [
        ("session", SIGN_IN_BYTES),
        ("nothing", OTHER_BYTES),
        ("analyses/x/share", OTHER_BYTES),
        ("analyses/x/effects", EFFECT_BYTES),
    ],
)
@variants("announced", [True, False])
def test_each_route_has_a_body_limit(lab: Users, path: str, limit: int, announced: bool) -> None:
    """A larger body is 413 with or without Content-Length, without a token before any of it is read."""
    body = b" " * (limit + 1)
    who = lab.anonymous if path == "session" else lab.ada
    answer = who.post(f"{API}/{path}", content=body if announced else iter([body]), headers=JSON)
    assert answer.status_code == 413
    check_problem(answer)


def test_strangers_send_no_body(lab: Users) -> None:
    """A request without a token is rejected by its head, without waiting for the body."""
    with socket.create_connection(lab.server.url.split(":"), timeout=BODY_SECONDS / 2) as connection:
        connection.sendall(HEAD + b"Content-Length: 1000\r\n\r\n")
        assert b" 401 " in connection.recv(1000)


def test_invented_keys_and_errors_cost_nothing(lab: Users) -> None:
    """A request with 700,000 keys, and one with 100,000 errors, are 4xx while another user is served."""
    keys = b"{" + b",".join(b'"%d":0' % key for key in range(700_000)) + b"}"
    assert lab.ada.post(f"{API}/analyses", content=keys, headers=JSON).json()["limit"] == 500_000
    answer = lab.ada.post(f"{API}/analyses", json={"model": "bert", "token_ids": ["x"] * 100_000})
    assert [error["pointer"] for error in answer.json()["errors"]] == ["/token_ids/0"]


def test_slow_clients(server: Server) -> None:
    """Heads and bodies that do not arrive, and unread responses, end their connections in time."""
    begun = time.monotonic()
    sent = {
        "no head": b"",
        "half a head": b"GET /healthz HTTP/1.1\r\n",
        "second head": b"GET",
        "body": HEAD + b"Content-Length: 9\r\n\r\n{",
        "body not read": b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\n{",
    }
    with ExitStack() as stack:
        connections = {name: stack.enter_context(_connected(server)) for name in sent}
        connections["second head"].sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert b"200 OK" in connections["second head"].recv(65536)
        for name, data in sent.items():
            connections[name].sendall(data)
        seconds, answers = {}, {}
        for name in ("body not read", "no head", "half a head", "body", "second head"):
            answers[name] = b"".join(iter(lambda name=name: connections[name].recv(65536), b""))  # type: ignore[misc]
            seconds[name] = time.monotonic() - begun
    assert b" 408 " in answers["body"]
    assert answers["no head"] == answers["half a head"] == b""
    assert LINGER_SECONDS - 1 < seconds["body not read"] < HEAD_SECONDS - 1
    assert HEAD_SECONDS - 1 < seconds["no head"] <= seconds["body"] <= seconds["second head"] < HEAD_SECONDS + 10


def _connected(server: Server) -> socket.socket:
    host, port = server.url.split(":")
    return socket.create_connection((host, int(port)), timeout=60)


def test_a_client_that_disconnects(server: Server) -> None:
    """Its request is cancelled, which is no internal error."""
    id_ = server.analyse(model="bert", text="Gone. " * 49, lenses=["weights"])["id"]
    answered = lambda status: by_name(server, "headscope_http_requests_total", route=ROUTE, status=status)  # noqa: E731
    refused, failed, rows = answered("4xx"), answered("5xx"), count(1)

    def cancelled() -> bool:
        """Leave while the response is computed; none is computed twice."""
        path = f"{API}/analyses/{id_}/maps/weights?format=json&query=0:{100 + next(rows)}"
        with _connected(server) as connection:
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        return answered("4xx") > refused

    eventually(cancelled, "a request that is cancelled")
    assert answered("5xx") == failed
    assert "ClientDisconnect" not in server.log()


class FewDescriptors(Server):
    """A server that may have 256 file descriptors."""

    def launch(self, command: Any, **options: Any) -> None:
        super().launch(["prlimit", "--nofile=256", *command], **options)


def test_more_connections_than_descriptors(tmp_path: Path, models: Path) -> None:
    """300 connections that never complete their head do not block other clients, and log nothing."""
    with FewDescriptors(tmp_path / "home", models, preloaded=False) as server, ExitStack() as stack:
        for _ in range(300):
            stack.enter_context(_connected(server)).sendall(b"GET /healthz HTTP/1.1\r\n")
        for _ in range(20):
            with server.visitor() as visitor:
                assert visitor.get("/healthz").status_code == 200
        assert server.log() == ""


def test_what_strangers_have_logged() -> None:
    """Invalid HTTP is logged at most once a second, as one line without a traceback."""
    log, seldom = logging.getLogger("test"), _OncePerSecond()
    records = [
        log.makeRecord("asyncio", logging.ERROR, "", 0, f"{PROVOKED[0]}\nsocket: {n}", (), None) for n in range(3)
    ]
    records[2].created += 1.0
    assert [seldom.filter(record) for record in records] == [True, False, True]
    assert records[0].getMessage() == PROVOKED[0]
    assert seldom.filter(log.makeRecord("asyncio", logging.ERROR, "", 0, "another", (), None))


def test_connections_leave_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most three quarters of the descriptors, and never more than 4096."""
    for limit, most in ((256, 160), (1024, 768), (65536, 4096), (resource.RLIM_INFINITY, 4096), (64, 1)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, limit=limit: (limit, limit))
        assert max_connections() == most
