"""Responses are compressed for clients that accept it, if they are large."""

from __future__ import annotations

import gzip

from fastapi import Request, Response

from headscope.api.http.compression import compress

BODY = bytes(1000) + b"thumbnails"


def _asked(coding: str) -> Request:
    return Request({"type": "http", "headers": [(b"accept-encoding", coding.encode())]})


def test_a_large_response() -> None:
    found = compress(Response(BODY), _asked("br, gzip"), least=1000, level=1)
    assert gzip.decompress(found.body) == BODY
    assert found.headers["Content-Encoding"] == "gzip"
    assert int(found.headers["Content-Length"]) == len(found.body) < len(BODY)
    assert found.headers["Vary"] == "Accept-Encoding"


def test_a_small_response_and_another_coding() -> None:
    for request, least in ((_asked("gzip"), 2000), (_asked("identity"), 10)):
        found = compress(Response(BODY), request, least=least)
        assert found.body == BODY
        assert "Content-Encoding" not in found.headers
        assert found.headers["Vary"] == "Accept-Encoding"
