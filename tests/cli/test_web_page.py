"""Web pages written by the command line."""

from __future__ import annotations

import base64
import gzip
import json
import re
from pathlib import Path

import pytest

import headscope
from headscope.errors import BudgetExceeded, InvalidRequest
from headscope.library import site
from tests.support.commands import run
from tests.unit.conftest import TINY

TEXT = "The <b>cat</b> & </script> sat."


def test_analyze_to_a_web_page(models: Path, tmp_path: Path) -> None:
    """Chosen heads are analysed with their layers, and a page has only these; its folder is created."""
    out = tmp_path / "pages" / "cat.html"
    given = ["analyze", "The cat sat.", "-m", "bert", "--out", str(out)]
    ended = run(tmp_path / "home", *given, "--heads", "0.1,1.3", models=models)
    assert ended.returncode == 0, ended.stderr
    assert [line.split()[0] for line in ended.stdout.splitlines()[-4:]] == ["0.1", "0.3", "1.1", "1.3"]
    assert "This file has 2 of the 4 heads: 0.1, 1.3." in page_responses(out)["/analysis"].decode()
    refused = run(tmp_path / "home", *given, "--heads", "first", models=models)
    assert refused.returncode == 2
    assert "LAYER.HEAD" in refused.stderr


def test_export_site(models: Path, tmp_path: Path) -> None:
    """A list with relative links to one page per analysis; its sizes are bounded before, and nothing is replaced unless it is asked for."""
    files = [tmp_path / name for name in ("first_text.safetensors", "Fírst-text!.safetensors")]
    for file in files:
        ended = run(tmp_path / "home", "analyze", TEXT, "-m", "bert", "--out", str(file), models=models)
        assert ended.returncode == 0, ended.stderr
    given = ["export-site", str(tmp_path / "site"), *map(str, files), "--title", "Two <texts>"]
    written = run(tmp_path / "home", *given)
    assert written.returncode == 0, written.stderr
    pages = {path.name: path.read_text("utf-8") for path in (tmp_path / "site").iterdir()}
    assert pages.keys() == {"index.html", "first-text.html", "first-text-2.html"}
    most, size = (
        float(re.search(rf"{words} ([0-9.]+) MB", written.stdout)[1]) for words in ("Together at most", "Wrote")
    )
    assert sum(map(len, pages.values())) / 1e6 == pytest.approx(size, abs=0.06)
    assert size <= most
    listed = pages["index.html"]
    assert re.findall(r'href="([^"]*)"', listed) == ["first-text.html", "first-text-2.html"]
    assert all(source.startswith("data:image/png;base64,") for source in re.findall(r'src="([^"]*)"', listed))
    assert "The &lt;b&gt;cat&lt;/b&gt; &amp; &lt;/script&gt; sat." in listed
    assert "<title>Two &lt;texts&gt;</title>" in listed
    assert "script" not in re.sub("&lt;/script&gt;", "", listed)
    assert '<a href="index.html">← Two &lt;texts&gt;</a>' in pages["first-text.html"]
    assert "<title>Fírst text! · Two &lt;texts&gt;</title>" in pages["first-text-2.html"]
    document = json.loads(page_responses(tmp_path / "site" / "first-text.html")["/analysis"])
    assert document["id"] == headscope.open(files[0]).id

    refused = run(tmp_path / "home", *given)
    assert refused.returncode == 1
    assert "pages of the same names" in refused.stderr
    assert run(tmp_path / "home", *given, "--replace").returncode == 0


def test_sites_have_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not fit, has no maps or is no analysis is rejected before anything is written."""
    a = headscope.analyze(TINY["gpt2"](), token_ids=[1, 2, 3])
    without = headscope.analyze(TINY["gpt2"](), token_ids=[1, 2, 3], maps=False)
    (tmp_path / "other.safetensors").write_text("nothing")
    for given in ([], [without], [a, tmp_path / "other.safetensors"]):
        with pytest.raises(InvalidRequest):
            headscope.export_site(tmp_path / "site", given)
    monkeypatch.setattr(site, "MOST_BYTES", 1_000_000)
    with pytest.raises(BudgetExceeded, match="Leave out analyses"):
        headscope.export_site(tmp_path / "site", [a, a])
    assert not (tmp_path / "site").exists()
    assert headscope.export_site(tmp_path / "site", [a]).name == "index.html"


def page_responses(path: Path) -> dict[str, bytes]:
    """Return the responses in a web page, by path."""
    found = re.findall(r'data-answer="([^"]+)">([A-Za-z0-9+/=]*)<', path.read_text("utf-8"))
    return {name: gzip.decompress(base64.b64decode(packed)) for name, packed in found}
