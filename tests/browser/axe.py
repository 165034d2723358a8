"""What axe-core, the usual checker of accessibility, finds on a page: light, dark and narrow."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Frame, Page, expect

from tests.browser.visit import Visit, comes_to
from tests.support.extent import extent

FRONTEND = Path(__file__).parents[2] / "frontend"
AXE = (FRONTEND / "node_modules" / "axe-core" / "axe.min.js").read_text("utf-8")
RUN = """([rules, enabled]) => axe.run(document, {
  resultTypes: ['violations'], rules: { 'color-contrast': { enabled } }, ...(rules.length ? { runOnly: rules } : {}),
}).then(({ violations }) => violations.flatMap(
  ({ id, help, nodes }) => nodes.map(({ target, failureSummary }) => `${id}: ${help}: ${target.join(' ')}: ${failureSummary.split('\\n').at(-1).trim()}`)))"""


def complaints(page: Page | Frame, *rules: str, contrast: bool = True) -> list[str]:
    """Return the violations that axe finds on the page; the rule of `contrast` takes half of its time. Its script is injected by the browser, outside the page's policy."""
    if not page.evaluate("'axe' in globalThis"):
        page.evaluate(AXE)
    return list(page.evaluate(RUN, [list(rules), contrast]))


def check(visit: Visit, *, narrow: bool = True, fully: bool = False, entry: str = "") -> None:
    """Nothing is wrong, light or dark, wide or narrow; then the page is light again and as large as it was. Only colours differ between light and dark.

    In `make test` contrast, and dark and narrow pages, are checked only where a test asks for it `fully`: in the gallery, and where everything is open at once.
    What an entry of the gallery shows, too, is looked at there instead.
    """
    if entry and extent(False, True):
        return
    size = visit.page.viewport_size
    assert size
    if extent(False, not fully):
        comes_to(lambda: complaints(visit.page, contrast=False), [])
        return
    comes_to(lambda: complaints(visit.page), [])
    visit.page.emulate_media(color_scheme="dark")
    expect(visit.page.locator("html")).to_have_attribute("data-theme", "dark")
    comes_to(lambda: complaints(visit.page, "color-contrast"), [])
    if narrow:
        visit.page.set_viewport_size({"width": 390, "height": 844})
        comes_to(lambda: complaints(visit.page), [])
        visit.page.set_viewport_size(size)
    visit.page.emulate_media(color_scheme="light")
