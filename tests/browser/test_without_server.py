"""The server dies while the page is open. This module runs last and leaves no server behind."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import expect

from tests.browser.visit import Visit
from tests.support.server import Server


def test_server_gone(visits: Callable[..., Visit], server: Server) -> None:
    """One plain sentence; picture and text are kept; pressing again once it is back is all that is needed."""
    visit = visits(new=True).open()
    visit.painted("graph")
    server.kill()
    visit.network_errors_expected = True
    visit.text.fill("Anybody there?")
    visit.text.press("Enter")
    expect(visit.alert).to_contain_text("The server cannot be reached. Your text is kept")
    expect(visit.text).to_have_value("Anybody there?")
    expect(visit.tokens.filter(has_text="boats")).to_have_count(2)
    expect(visit.image("Heat map of head 2.9")).to_be_visible()
