"""The page's files: compressed for clients that accept it, and cached forever by name."""

from __future__ import annotations

import re

from tests.support.server import Server

SMALL = 10_000  # bytes


def test_files_of_the_page(embedded: Server) -> None:
    """Every file that the page references exists, and is smaller for clients that accept gzip: half as large, but for small files."""
    with embedded.visitor() as visitor:
        page = visitor.get("/")
        assert page.headers["cache-control"] == "no-cache"
        names = re.findall(r'(?:src|href)="(/assets/[^"]+\.(?:js|css))"', page.text)
        assert len(names) >= 2
        for name in names:
            zipped = visitor.get(name, headers={"Accept-Encoding": "gzip"})
            plain = visitor.get(name, headers={"Accept-Encoding": "identity"})
            assert zipped.headers["content-encoding"] == "gzip"
            small, large = (int(answer.headers["content-length"]) for answer in (zipped, plain))
            assert small < (large / 2 if large > SMALL else large)
            assert zipped.content == plain.content
            assert "content-encoding" not in plain.headers
            for answer in (zipped, plain):
                assert answer.headers["vary"] == "Accept-Encoding"
                assert answer.headers["cache-control"].endswith("immutable")
                assert answer.headers["content-type"].startswith(("text/javascript", "text/css"))
