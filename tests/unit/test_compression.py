"""Responses are compressed for clients that accept it, if they are large."""

from __future__ import annotations

import gzip

import httpx2
import pytest
from fastapi import Request, Response

from headscope.api.http.compression import compress
from headscope.api.http.negotiation import choose_coding

BODY = bytes(1000) + b"thumbnails"


def _asked(coding: str) -> Request:
    return Request({"type": "http", "headers": [(b"accept-encoding", coding.encode())]})


def test_a_large_response() -> None:
    found = compress(Response(BODY), _asked("br, gzip"), least=1000, level=1)
    assert gzip.decompress(found.body) == BODY
    assert found.headers["Content-Encoding"] == "gzip"
    assert int(found.headers["Content-Length"]) == len(found.body) < len(BODY)
    assert found.headers["Vary"] == "Accept-Encoding"
    body = found.body
    assert compress(found, _asked("gzip, zstd"), least=1).body == body  # never twice


def test_zstd() -> None:
    """A client that prefers neither gets zstd, and caches learn of everything that the response depends on."""
    found = compress(Response(BODY, headers={"Vary": "Accept"}), _asked("gzip, deflate, br, zstd"))
    assert found.headers["Content-Encoding"] == "zstd"
    assert found.headers["Vary"] == "Accept, Accept-Encoding"
    assert int(found.headers["Content-Length"]) == len(found.body) < len(BODY)
    read = httpx2.Response(200, headers=found.headers, content=found.body)
    assert read.content == BODY


@pytest.mark.parametrize(
    ("accepted", "coding"),
    [
        ("gzip, zstd", "zstd"),
        ("gzip;q=1.0, zstd;q=0.5", "gzip"),
        ("zstd;q=0, gzip;q=0.1", "gzip"),
        ("zstd;q=0, gzip;q=0", None),
        ("identity, zstd;q=0.5", None),
        ("zstd;q=0.5, identity;q=0.1", "zstd"),
        ("*", None),
        ("", None),
    ],
)
def test_weights_of_codings(accepted: str, coding: str | None) -> None:
    assert choose_coding(_asked(accepted)) == coding


def test_a_small_response_and_another_coding() -> None:
    for request, least in ((_asked("gzip"), 2000), (_asked("identity"), 10)):
        found = compress(Response(BODY), request, least=least)
        assert found.body == BODY
        assert "Content-Encoding" not in found.headers
        assert found.headers["Vary"] == "Accept-Encoding"
