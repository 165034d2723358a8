"""An analysis as a widget, two-way, with maps from the kernel."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import comm
import pytest
from comm.base_comm import BaseComm
from playwright.sync_api import Browser, Page, expect

import headscope
from headscope.errors import InvalidRequest, Unsupported
from headscope.library.notebook import NotebookView
from headscope.library.widget import Widget


@pytest.fixture(scope="module")
def analysis() -> headscope.Analysis:
    return headscope.analyze("minilm", "The cat sat on the mat.", measures=("entropy",), layers=[0, 4], heads=[2, 5])


class _Comm(BaseComm):
    """The kernel's end of a connection, which keeps what the kernel sends."""

    def publish_msg(
        self, msg_type: str, data: Any = None, metadata: Any = None, buffers: Any = None, **keys: Any
    ) -> None:
        self.sent = [*getattr(self, "sent", []), (data, buffers)]

    def receive(self, data: dict[str, Any]) -> list[dict[str, Any]]:
        """Handle a message of the notebook, and return the answers to it."""
        self.sent = []
        self.handle_msg({"content": {"data": data}, "buffers": []})
        encoded = [(found, [base64.b64encode(each).decode() for each in buffers or []]) for found, buffers in self.sent]
        return [{**found, "buffers": buffers} for found, buffers in encoded if found["method"] == "custom"]


# A notebook: the model of a widget as anywidget's front-end modules know it, with the kernel behind `kernel`. Outputs are in shadow trees, as in marimo.
NOTEBOOK = """<!doctype html><body style="background: oklch(0.2 0 0)"><div id="out"></div><script type="module">
const handlers = new Map(), state = STATE
const emit = (name, ...values) => handlers.get(name)?.forEach((handle) => handle(...values))
const bytes = (text) => new DataView(Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)).buffer)
const model = {
  get: (name) => state[name],
  set(name, value) {
    if (state[name] === value) return
    state[name] = value
    emit(`change:${name}`)
  },
  save_changes: () => kernel({ method: 'update', state, buffer_paths: [] }),
  async send(content) {
    for (const one of await kernel({ method: 'custom', content })) emit('msg:custom', one.content, one.buffers.map(bytes))
  },
  on: (name, handle) => handlers.set(name, new Set([...(handlers.get(name) ?? []), handle])),
  off: (name, handle) => handlers.get(name)?.delete(handle),
}
window.model = model
const { default: widget } = await import(URL.createObjectURL(new Blob([MODULE], { type: 'text/javascript' })))
const el = document.createElement('div')
document.getElementById('out').attachShadow({ mode: 'open' }).append(el)
window.close = widget.render({ model, el })
</script>"""


def wait(page: Page, holds: Callable[[], bool]) -> None:
    """Wait up to a minute until something holds that the page's messages bring about."""
    for _ in range(600):
        if holds():
            return
        page.wait_for_timeout(100)
    pytest.fail("it did not come about")


def test_widget(
    browser: Browser, analysis: headscope.Analysis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Maps come from the kernel when they are opened; a click in the viewer sets the traits, and a trait moves the viewer."""
    monkeypatch.setattr(comm, "create_comm", _Comm)
    shown = headscope.show(analysis, "4.5", widget=True)
    page = browser.new_page(viewport={"width": 1100, "height": 900})
    asked = []

    def kernel(data: dict[str, Any]) -> list[dict[str, Any]]:
        asked.append(data.get("content", {}).get("path", ""))
        return shown.comm.receive(data)

    page.expose_function("kernel", kernel)
    state = {name: getattr(shown, name) for name in ("head", "lens", "pins", "range", "height", "still")}
    notebook = NOTEBOOK.replace("STATE", json.dumps(state)).replace(
        "MODULE", json.dumps(Widget._esm.replace("</", "<\\/"))
    )
    (tmp_path / "notebook.html").write_text(notebook, "utf-8")
    page.goto((tmp_path / "notebook.html").as_uri())
    frame = page.frame_locator('iframe[title="Headscope"]')
    expect(frame.get_by_role("img", name="Heat map of head 4.5")).to_be_visible()
    expect(page.get_by_role("img", name="Small maps of all heads")).to_have_count(0)
    expect(frame.locator(":root")).to_have_attribute("data-theme", "dark")  # as the notebook is
    maps = lambda: [path for path in asked if path.startswith("/factors/weights/")]  # noqa: E731
    wait(page, lambda: maps() == ["/factors/weights/1.1"])
    frame.get_by_role("grid", name="Heads").press("ArrowLeft")
    expect(frame.get_by_role("img", name="Heat map of head 4.2")).to_be_visible()
    wait(page, lambda: shown.head == "4.2")
    page.evaluate("model.set('head', '0.5')")
    expect(frame.get_by_role("img", name="Heat map of head 0.5")).to_be_visible()
    shown.save(tmp_path / "saved.html")
    assert "head=4.2" in (tmp_path / "saved.html").read_text("utf-8")
    for name in ("head", "lens"):
        with pytest.raises(InvalidRequest):
            setattr(shown, name, "nonsense")
    page.close()


def test_widget_where_no_kernel_answers(
    browser: Browser, analysis: headscope.Analysis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a notebook keeps of the widget is a picture of all heads, and what to do for the viewer."""
    monkeypatch.setattr(comm, "create_comm", _Comm)
    bundle, _ = headscope.show(analysis, "4.5", widget=True)._repr_mimebundle_()
    assert bundle["application/vnd.jupyter.widget-view+json"]["model_id"]
    assert len(bundle["text/html"]) < 10_000
    (tmp_path / "exported.html").write_text(f"<!doctype html>{bundle['text/html']}", "utf-8")
    page = browser.new_page()
    page.goto((tmp_path / "exported.html").as_uri())
    heads = page.get_by_role("img", name="Small maps of all heads: a row per layer")
    assert heads.evaluate("image => [image.naturalWidth, image.naturalHeight]") == [20, 20]
    expect(page.get_by_text("4 heads of minilm, 9 tokens, through the lens Weights")).to_be_visible()
    page.close()


def test_answers_of_the_widget(analysis: headscope.Analysis) -> None:
    """A head's map is what the analysis has; paths that do not exist have no answer."""
    shown = headscope.show(analysis, heads=["0.5", "4.2"], widget=True)
    assert shown.head == "0.5"
    assert shown._page.answer("/factors/weights/1.0") is not None
    for path in (
        "/factors/weights/2.0",
        "/factors/weights/0.2",
        "/factors/nonsense/0.0",
        "/maps/weights/0",
        "/../secret",
    ):
        assert shown._page.answer(path) is None
    with pytest.raises(InvalidRequest):
        headscope.show(analysis, heads=["3.3"], widget=True)


def test_widget_in_a_notebook(analysis: headscope.Analysis, monkeypatch: pytest.MonkeyPatch) -> None:
    """marimo has no kernel of IPython; in a script that imports it, there is no notebook."""
    for running, kind in ((True, Widget), (False, NotebookView)):
        monkeypatch.setitem(sys.modules, "marimo", SimpleNamespace(running_in_notebook=lambda answer=running: answer))
        assert isinstance(headscope.show(analysis), kind)


def test_widget_without_anywidget(analysis: headscope.Analysis, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outside of Jupyter the viewer is a frame, and a widget only if it is wanted."""
    assert isinstance(headscope.show(analysis), NotebookView)
    assert isinstance(headscope.show(analysis, widget=True), Widget)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(Unsupported, match="notebook"):
        headscope.show(analysis, widget=True)
