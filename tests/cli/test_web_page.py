"""Web pages written by the command line."""

from __future__ import annotations

import base64
import gzip
import re
from pathlib import Path

from tests.support.commands import run


def test_analyze_to_a_web_page(models: Path, tmp_path: Path) -> None:
    """Chosen heads are analysed with their layers, and a page has only these."""
    out = tmp_path / "cat.html"
    given = ["analyze", "The cat sat.", "-m", "bert", "--out", str(out)]
    ended = run(tmp_path / "home", *given, "--heads", "0.1,1.3", models=models)
    assert ended.returncode == 0, ended.stderr
    assert [line.split()[0] for line in ended.stdout.splitlines()[-4:]] == ["0.1", "0.3", "1.1", "1.3"]
    assert "This file has 2 of the 4 heads: 0.1, 1.3." in page_responses(out)["/analysis"].decode()
    refused = run(tmp_path / "home", *given, "--heads", "first", models=models)
    assert refused.returncode == 2
    assert "LAYER.HEAD" in refused.stderr


def page_responses(path: Path) -> dict[str, bytes]:
    """Return the responses in a web page, by path."""
    found = re.findall(r'data-answer="([^"]+)">([A-Za-z0-9+/=]*)<', path.read_text("utf-8"))
    return {name: gzip.decompress(base64.b64decode(packed)) for name, packed in found}
