"""Bytes that no HTTP client would send: no server error, and other clients are served."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.server import Server
from tests.support.variants import variants

HOST = b"Host: 127.0.0.1\r\n"
GOOD = b'{"model": "bert", "text": "The cat sat."}'
POST = b"POST /api/v1/analyses HTTP/1.1\r\n" + HOST + b"Content-Type: application/json\r\n"
GET = b"GET /healthz HTTP/1.1\r\n"

BYTES = {
    "two-hosts": GET + HOST + b"Host: evil.example\r\n\r\n",
    "same-host-twice": GET + HOST + HOST + b"\r\n",
    "no-host": GET + b"\r\n",
    "empty-host": GET + b"Host: \r\n\r\n",
    "host-with-path": GET + b"Host: 127.0.0.1/?x=\r\n\r\n",
    "host-with-user": GET + b"Host: evil@127.0.0.1\r\n\r\n",
    "http-0.9": b"GET /healthz\r\n",
    "http-1.0": b"GET /healthz HTTP/1.0\r\n\r\n",
    "http-2-preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "http-9.9": b"GET /healthz HTTP/9.9\r\n" + HOST + b"\r\n",
    "absolute-target": b"GET http://evil.example/healthz HTTP/1.1\r\n" + HOST + b"\r\n",
    "authority-target": b"CONNECT evil.example:80 HTTP/1.1\r\n" + HOST + b"\r\n",
    "asterisk-target": b"OPTIONS * HTTP/1.1\r\n" + HOST + b"\r\n",
    "target-without-slash": b"GET @evil.example HTTP/1.1\r\n" + HOST + b"\r\n",
    "target-with-space": b"GET /a b HTTP/1.1\r\n" + HOST + b"\r\n",
    "target-with-bytes": b"GET /\xff\xfe HTTP/1.1\r\n" + HOST + b"\r\n",
    "huge-header": GET + HOST + b"X: " + b"a" * 1_000_000 + b"\r\n\r\n",
    "many-headers": GET + HOST + b"".join(b"X-%d: a\r\n" % number for number in range(50_000)) + b"\r\n",
    "huge-target": b"GET /" + b"a" * 1_000_000 + b" HTTP/1.1\r\n" + HOST + b"\r\n",
    "header-without-colon": GET + HOST + b"nonsense\r\n\r\n",
    "header-with-nul": GET + HOST + b"X: a\0b\r\n\r\n",
    "folded-header": GET + HOST + b"X: a\r\n b\r\n\r\n",
    "length-negative": POST + b"Content-Length: -1\r\n\r\n",
    "length-not-a-number": POST + b"Content-Length: abc\r\n\r\n",
    "length-superscript": POST + b"Content-Length: \xb2\r\n\r\n",
    "length-huge": POST + b"Content-Length: 99999999999999999999\r\n\r\n",
    "length-leading-zeros": POST + b"Content-Length: 000000000000000000099999999\r\n\r\n",
    "length-twice": POST + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    "length-too-long": POST + b"Content-Length: 500\r\n\r\n" + GOOD,
    "length-too-short": POST + b"Content-Length: 5\r\n\r\n" + GOOD,
    "length-and-chunks": POST + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunk-size-wrong": POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
    "chunk-size-huge": POST + b"Transfer-Encoding: chunked\r\n\r\n" + b"f" * 30 + b"\r\n{}",
    "encoding-unknown": POST + b"Transfer-Encoding: gzip\r\n\r\n" + GOOD,
    "nothing-but-garbage": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "empty-lines": b"\r\n\r\n\r\n",
}


@contextmanager
def connected(server: Server) -> Iterator[socket.socket]:
    """Open a plain connection with a timeout of ten seconds."""
    host, port = server.url.split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        yield connection


def answers(connection: socket.socket) -> bytes:
    """Return everything the server sends until it closes."""
    data = b""
    try:
        while chunk := connection.recv(65536):
            data += chunk
    except ConnectionError:
        pass
    return data


def statuses(data: bytes) -> list[int]:
    """Return the status codes of the responses."""
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3})", data)]


@variants("data", BYTES.values(), ids=BYTES)
def test_odd_bytes(server: Server, data: bytes) -> None:
    """Never 5xx, never an echo, and a valid request right after succeeds."""
    with connected(server) as connection:
        try:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # rejected and closed before everything was sent
        answered = answers(connection)
    assert all(status < 500 for status in statuses(answered)), answered[:300]
    assert b"evil" not in answered
    assert server.client.get("/healthz").status_code == 200


@pytest.mark.parametrize("data", [BYTES["two-hosts"], BYTES["no-host"], BYTES["host-with-path"], BYTES["empty-host"]])
def test_odd_hosts_reach_nothing(server: Server, data: bytes) -> None:
    """None of them is accepted as a request to this server."""
    with connected(server) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        assert all(status in (400, 421) for status in statuses(answers(connection)))


def test_endless_chunks_are_cut_off(server: Server) -> None:
    """A body that never ends is 413 once it is larger than allowed."""
    with connected(server) as connection:
        connection.sendall(POST + b"Transfer-Encoding: chunked\r\n\r\n")
        chunk = b"%x\r\n" % 65536 + b" " * 65536 + b"\r\n"
        try:
            for _ in range(400):  # 25 MB
                connection.sendall(chunk)
        except ConnectionError:
            pass
        else:
            pytest.fail("all of it was taken")
        assert statuses(answers(connection)) in ([413], [])
    assert server.client.get("/healthz").status_code == 200


def test_idle_connections_do_not_block_others(server: Server) -> None:
    """200 connections that never complete their request; another client is served at once."""
    lazy = [socket.create_connection(tuple(server.url.split(":")), timeout=10) for _ in range(200)]
    try:
        for connection in lazy:
            connection.sendall(GET)
        assert server.client.get("/healthz").status_code == 200
        assert server.post({"model": "bert", "text": "The cat sat."}).status_code in (200, 202)
    finally:
        for connection in lazy:
            connection.close()


def test_pipelined_requests_are_answered_in_order(server: Server) -> None:
    """Two pipelined requests on one connection get two responses."""
    with connected(server) as connection:
        connection.sendall(GET + HOST + b"\r\n" + b"GET /nothing HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n")
        assert statuses(answers(connection)) == [200, 404]
