"""The site of the docs with several versions, served as a web host does."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from docs.versions import State, add_version
from playwright.sync_api import Browser, expect

from tests.browser.visit import Visit
from tests.support.extent import extent

ROOT = Path(__file__).resolve().parents[2]
# Two pages with the theme of the real site.
CONFIG = f"""
INHERIT: {ROOT / "mkdocs.yml"}
docs_dir: pages
theme: {{custom_dir: {ROOT / "docs" / "theme"}}}
hooks: [{ROOT / "docs" / "plain_pages.py"}]
extra_css: []
not_in_nav: ""
nav: [index.md, how-to/maps.md]
"""


class Quiet(SimpleHTTPRequestHandler):
    """A web host without a log."""

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three versions, built one after the other; the second, released from an unreleased state, has a heading more."""
    top = tmp_path_factory.mktemp("docs")
    (top / "mkdocs.yml").write_text(CONFIG)
    (top / "pages" / "how-to").mkdir(parents=True)
    (top / "pages" / "index.md").write_text("# Start\n")
    maps = top / "pages" / "how-to" / "maps.md"
    maps.write_text("# Maps\n\nOld words.\n")
    first, *others = (("0.9.0", True), ("0.10.0", False), ("0.10.0", True), ("0.11.0", False))
    for number, released in (first, *others[extent(0, 1) :]):  # in `make test` no release replaces an unreleased state
        add_version(top / "mkdocs.yml", top / "site", State(number, released))
        maps.write_text("# Maps\n\nNew words.\n\n## Rollout\n")
    return top / "site"


@pytest.fixture
def visit(browser: Browser, folder: Path) -> Iterator[Visit]:
    """A visit to the newest release of one page."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder)) as host:
        threading.Thread(target=host.serve_forever, daemon=True).start()
        visit = Visit(browser, f"http://127.0.0.1:{host.server_port}", color_scheme="light")
        yield visit
        visit.close()
        host.shutdown()
    assert visit.problems == []


@pytest.mark.long
def test_versions_are_listed(folder: Path) -> None:
    """The newest first, and an unreleased state is replaced by its release."""
    listed = json.loads((folder / "versions.json").read_text())
    assert [(one["version"], one["title"], one["aliases"]) for one in listed] == [
        ("dev", "0.11.0 (unreleased)", []),
        ("0.10.0", "0.10.0", ["latest"]),
        ("0.9.0", "0.9.0", []),
    ]
    assert "Old words" in (folder / "0.9.0" / "how-to" / "maps.md").read_text()
    assert "](0.10.0/how-to/maps.md)" in (folder / "llms.txt").read_text()


def test_selector_of_versions(visit: Visit) -> None:
    """It keeps the page; old and unreleased versions say what they are and lead to the newest; the search finds words."""
    page = visit.page
    old, unreleased = page.get_by_text("documentation of an old version"), page.get_by_text("unreleased state of")
    page.goto(f"{visit.root}/latest/how-to/maps.html#rollout")
    page.wait_for_url("**/0.10.0/how-to/maps.html#rollout")
    expect(page.get_by_text("New words.")).to_be_visible()
    expect(page.locator(".md-version__current")).to_have_text("0.10.0")
    expect(old).to_be_hidden()
    expect(unreleased).to_have_count(0)

    page.locator(".md-version__current").focus()
    page.get_by_role("link", name="0.9.0").click()
    page.wait_for_url("**/0.9.0/how-to/maps.html#rollout")
    expect(page.get_by_text("Old words.")).to_be_visible()
    expect(old).to_be_visible()
    page.get_by_role("link", name="newest release").click()
    page.wait_for_url("**/0.10.0/index.html")

    page.locator(".md-version__current").focus()
    page.get_by_role("link", name="0.11.0 (unreleased)").click()
    page.wait_for_url("**/dev/index.html")
    expect(unreleased).to_contain_text("0.11.0")
    page.goto(visit.root)
    page.wait_for_url("**/0.10.0/index.html")

    page.get_by_label("Search", exact=True).first.press_sequentially("rollout")
    found = page.locator(".md-search-result__link").last
    expect(found).to_have_attribute("href", re.compile("/0.10.0/how-to/maps.html#rollout"))
