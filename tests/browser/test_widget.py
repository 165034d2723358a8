"""An analysis in a notebook: the viewer in a frame, with the head that was asked for, and nothing of the notebook within its reach."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, Error, expect

import headscope
from headscope.errors import InvalidRequest

TEXT = "The cat sat </script><script>parent.alert(1)</script> on the mat."


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
    with pytest.raises(Error, match="cross-origin"):
        inner.evaluate("parent.document.title")
    page.close()


def test_saved_as_a_page(browser: Browser, analysis: headscope.Analysis, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    headscope.show(analysis).save(path)
    page = browser.new_page()
    page.goto(path.as_uri())
    expect(page.get_by_role("grid", name="Heads")).to_be_visible()
    page.close()


@pytest.mark.parametrize(("head", "height"), [("4.6", 700), ((1, 2), 700), ("four", 700), (None, 0), (None, 10**6)])
def test_what_can_not_be_shown(analysis: headscope.Analysis, head: str | None, height: int) -> None:
    with pytest.raises(InvalidRequest):
        headscope.show(analysis, head, height=height)
