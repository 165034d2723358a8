"""An analysis in a notebook: the viewer in a frame, with the head that was asked for, and nothing of the notebook within its reach."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Error, expect

import headscope
from headscope.errors import BudgetExceeded, InvalidRequest
from headscope.library import notebook as widget
from tests.browser.axe import complaints
from tests.support.extent import mostly_long
from tests.support.models import tiny_model

TEXT = "The cat sat </script><script>parent.alert(1)</script> on the mat."
# The policy of a notebook in VS Code, as a page of this machine has it.
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; img-src https: data:; "
    "font-src https:; connect-src https:; child-src https: data:"
)


@pytest.fixture(scope="module")
def analysis() -> headscope.Analysis:
    return headscope.analyze("minilm", TEXT, measures=("entropy",), layers=[0, 4], heads=[2, 5])


def test_shown_in_a_notebook(browser: Browser, analysis: headscope.Analysis, tmp_path: Path) -> None:
    """Where a notebook would put it; another head is opened by a click, without any network."""
    notebook = tmp_path / "notebook.html"
    notebook.write_text(f"<!doctype html><p>In [1]</p>{headscope.show(analysis, (4, 5))._repr_html_()}", "utf-8")
    page = browser.new_page(viewport={"width": 1100, "height": 900})
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url.partition(":")[0]))
    page.goto(notebook.as_uri())
    frame = page.frame_locator('iframe[title="Headscope"]')
    expect(frame.get_by_role("img", name="Heat map of head 4.5")).to_be_visible()
    expect(frame.get_by_label("Text", exact=True)).to_have_value(TEXT)
    frame.get_by_role("grid", name="Heads").press("ArrowLeft")
    expect(frame.get_by_role("img", name="Heat map of head 4.2")).to_be_visible()
    assert set(asked) <= {"file", "data", "blob"}
    (inner,) = page.frames[1:]
    assert complaints(inner) == []
    with pytest.raises(Error, match="cross-origin"):
        inner.evaluate("parent.document.title")
    page.close()


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> headscope.Model:
    """A random model with 144 heads."""
    folder = tmp_path_factory.mktemp("wide") / "bert"
    tiny_model(folder, "bert", layers=12, heads=12, width=96, positions=512)
    return headscope.load(str(folder))


@pytest.mark.parametrize("tokens", mostly_long([12, 512], 12))
def test_144_heads_of_a_long_text(browser: Browser, wide: headscope.Model, tokens: int, tmp_path: Path) -> None:
    """A notebook whose policy allows nothing but inline scripts and styles draws it, and undo works in the frame."""
    a = headscope.analyze(wide, token_ids=[5 + i % 20 for i in range(tokens)], lenses=("weights",))
    notebook = tmp_path / "notebook.html"
    policy = f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
    notebook.write_text(f"<!doctype html>{policy}{headscope.show(a, '11.3')._repr_html_()}", "ascii")
    page = browser.new_page(viewport={"width": 1100, "height": 900})
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto(notebook.as_uri())
    expect(page.get_by_title("Headscope")).to_be_attached()
    (frame,) = (
        page.main_frame.child_frames
    )  # no frame locator: Playwright would describe the whole attribute `srcdoc` at each use
    heat = frame.get_by_role("img", name="Heat map of head 11.3")
    expect(heat).to_be_visible(timeout=60_000)
    frame.get_by_role("grid", name="Heads").press("ArrowLeft")
    expect(frame.get_by_role("img", name="Heat map of head 11.2")).to_be_visible()
    page.keyboard.press("Control+z")
    expect(heat).to_be_visible()
    assert wrong == []
    page.close()


# The test below saves and opens one.
@pytest.mark.long
def test_saved_as_a_page(browser: Browser, analysis: headscope.Analysis, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    headscope.show(analysis, "4.5").save(path)
    page = browser.new_page()
    page.goto(path.as_uri())
    expect(page.get_by_role("img", name="Heat map of head 4.5")).to_be_visible()
    page.close()


def test_chosen_heads(browser: Browser, analysis: headscope.Analysis, tmp_path: Path) -> None:
    """The first of them is open, the others of the grid are empty, and a sentence names them."""
    path = tmp_path / "page.html"
    headscope.show(analysis, heads=[(4, 5), "0.2"]).save(path)
    page = browser.new_page()
    page.goto(path.as_uri())
    expect(page.get_by_role("img", name="Heat map of head 4.5")).to_be_visible()
    expect(page.get_by_text("This file has 2 of the 4 heads: 0.2, 4.5.").first).to_be_visible()
    page.close()
    with pytest.raises(InvalidRequest):
        headscope.show(analysis, "0.5", heads=["4.5"])
    with pytest.raises(InvalidRequest):
        headscope.show(analysis, heads=["3.3"])


def test_too_large_for_a_notebook(
    analysis: headscope.Analysis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The output then is what to do instead, and the page can still be saved; what is too large for a page is rejected at once."""
    monkeypatch.setattr(widget, "MOST_BYTES", 100_000)
    view = headscope.show(analysis)
    view.save(tmp_path / "page.html")
    assert (tmp_path / "page.html").stat().st_size > widget.MOST_BYTES
    assert "Choose fewer heads" in view._repr_html_()
    monkeypatch.setattr("headscope.api.documents.standalone.MOST", {"float32": 0, "float16": 0, "uint8": 0})
    with pytest.raises(BudgetExceeded, match="fewer layers, heads or lenses"):
        headscope.show(analysis)


@pytest.mark.parametrize(
    ("head", "height"), [("4.6", 700), ((1, 2), 700), ("four", 700), (None, 0), (None, 10**6), (None, "720")]
)
def test_what_can_not_be_shown(analysis: headscope.Analysis, head: str | None, height: Any) -> None:
    with pytest.raises(InvalidRequest):
        headscope.show(analysis, head, height=height)
