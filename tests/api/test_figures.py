"""Figures over HTTP: the same in both deployments, as JSON, CSV and images; failures say why; rendering delays no other request."""

from __future__ import annotations

import csv
import io
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pyarrow as pa
import pytest
from PIL import Image

from headscope import FIGURES
from headscope.figures.studies import STUDY_FIGURES
from tests.support.cluster import cluster_long
from tests.support.server import Server, eventually
from tests.unit.figures.test_images import hanging, started

NEEDED = sorted({measure for figure in FIGURES.values() for measure in figure.measures})
TEXT = "The cat sat on the mat because it was tired."


def analysed(server: Server) -> str:
    """The id of an analysis with everything that figures need."""
    return str(server.analyse(model="bert", text=TEXT, lenses=["weights"], measures=NEEDED)["id"])


def ask(server: Server, id_: str, figure: str, **query: Any) -> Any:
    return server.get(f"/analyses/{id_}/figures/{figure}", params=query)


def refusal(answer: Any) -> tuple[int, str]:
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    return answer.status_code, answer.json()["code"]


@cluster_long
def test_every_figure_in_every_form(server: Server) -> None:
    """Figures are as declared: JSON that plotly accepts, data as CSV, and 304 for clients that have them."""
    id_ = analysed(server)
    listed = server.get("/figures").json()["items"]
    declared = [item for item in listed if item["of"] == "analysis"]
    assert [item["name"] for item in declared] == list(FIGURES)
    assert [item["name"] for item in listed if item["of"] == "study"] == list(STUDY_FIGURES)
    for item in declared:
        answer = ask(server, id_, item["name"])
        assert answer.status_code == 200, answer.text
        figure = go.Figure(answer.json())
        assert figure.layout.meta["sentence"]
        again = server.get(answer.url.path.removeprefix("/api/v1"), headers={"If-None-Match": answer.headers["etag"]})
        assert again.status_code == 304
        table = ask(server, id_, item["name"], format="csv")
        assert table.headers["content-type"] == "text/csv; charset=utf-8"
        assert table.headers["content-disposition"] == f'attachment; filename="headscope-{id_[:8]}-{item["name"]}.csv"'
        lines = list(csv.reader(io.StringIO(table.text)))
        assert len(lines) > 1
        rows = pa.ipc.open_stream(ask(server, id_, item["name"], format="arrow").content).read_all()
        assert (rows.column_names, rows.num_rows) == (lines[0], len(lines) - 1)


def test_a_picture(embedded: Server) -> None:
    """A PNG has three pixels per px, is rendered by the local browser, and is cached per size."""
    id_ = analysed(embedded)
    answer = ask(embedded, id_, "patterns", format="png", width=300, height=200)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "image/png"
    with Image.open(io.BytesIO(answer.content)) as image:
        assert image.size == (900, 600)
        assert len(image.convert("RGB").getcolors(1 << 24)) > 10
    other = ask(embedded, id_, "patterns", width=301, height=200)
    assert other.headers["etag"] != answer.headers["etag"]


def test_vectors(embedded: Server) -> None:
    """SVG contains its words as text; PDF is PDF."""
    id_ = analysed(embedded)
    drawn = ask(embedded, id_, "entropy", format="svg")
    assert drawn.content.startswith(b"<svg")
    assert b"entropy (nats)" in drawn.content
    assert b"<script" not in drawn.content
    assert ask(embedded, id_, "entropy", format="pdf").content.startswith(b"%PDF-")
    again = ask(embedded, id_, "entropy", format="svg")
    assert again.content == drawn.content, "it is drawn once: every drawing has ids of its own"


def test_parameters_are_those_of_the_figure(embedded: Server) -> None:
    id_ = analysed(embedded)
    by_head = ask(embedded, id_, "entropy", layer=1, unit="bits").json()
    assert by_head["layout"]["xaxis"]["title"]["text"] == "head of layer 1"
    assert by_head["layout"]["yaxis"]["title"]["text"] == "entropy (bits)"
    assert refusal(ask(embedded, id_, "entropy", layer="one")) == (422, "invalid-request")
    wrong = ask(embedded, id_, "entropy", unit="kelvin").json()
    assert (wrong["code"], wrong["errors"][0]["pointer"]) == ("invalid-request", "/unit")
    assert "kelvin" not in str(wrong)
    assert refusal(ask(embedded, id_, "patterns", layer=1)) == (422, "invalid-request")
    assert refusal(ask(embedded, id_, "entropy", width=100_000)) == (422, "invalid-request")
    assert refusal(ask(embedded, id_, "entropy", theme="pink")) == (422, "invalid-request")
    assert refusal(ask(embedded, id_, "entropy", layer=7)) == (404, "unknown-layer")
    assert refusal(ask(embedded, id_, "entropy", lens="norm")) == (422, "invalid-request")
    assert refusal(ask(embedded, id_, "rank", lens="norm")) == (422, "unsupported")
    assert refusal(ask(embedded, id_, "nothing")) == (404, "unknown-figure")
    assert refusal(ask(embedded, "0" * 32, "entropy")) == (404, "unknown-analysis")


def test_a_measure_that_was_not_computed(embedded: Server) -> None:
    id_ = embedded.analyse(model="bert", text=TEXT, lenses=["weights"], measures=["entropy"])["id"]
    answer = ask(embedded, id_, "rank")
    assert refusal(answer) == (409, "not-ready")
    assert "needs the measure rank" in answer.json()["detail"]


def test_without_a_browser(new_server: Callable[..., Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a browser, the error says what to install; JSON and CSV still work.

    While a browser hangs, everything else responds; when it dies, rendering fails.
    """
    monkeypatch.setenv("BROWSER_PATH", str(tmp_path / "chromium"))
    server = new_server()
    id_ = analysed(server)
    answer = ask(server, id_, "entropy", format="pdf")
    assert refusal(answer) == (503, "figure-not-drawn")
    assert "apt-get install chromium" in answer.json()["detail"]
    assert ask(server, id_, "entropy", format="csv").status_code == 200

    hanging(tmp_path)
    answers: list[Any] = []
    waiting = threading.Thread(target=lambda: answers.append(ask(server, id_, "entropy", format="svg")), daemon=True)
    waiting.start()
    browser = eventually(lambda: started(tmp_path), "a browser that started")
    assert ask(server, id_, "entropy").status_code == 200
    assert not answers
    browser.kill()
    waiting.join(60)
    assert refusal(answers[0]) == (503, "figure-not-drawn")


def test_plotly_for_the_page(embedded: Server) -> None:
    """plotly.js comes from this server, compressed and with an ETag, and needs neither eval nor inline styles."""
    with embedded.visitor() as visitor:
        answer = visitor.get("/assets/plotly.js")
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/javascript")
        assert answer.headers["content-encoding"] == "gzip"
        assert int(answer.headers["content-length"]) < 2_000_000
        assert b"plotly.js-style-global" in answer.content[:300]
        plain = visitor.get("/assets/plotly.js", headers={"Accept-Encoding": "identity"})
        assert plain.content == answer.content
        again = visitor.get("/assets/plotly.js", headers={"If-None-Match": answer.headers["etag"]})
        assert again.status_code == 304
