"""Signing in on the page with an identity provider, by hand."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.axe import check
from tests.browser.visit import Visit, address
from tests.support.identity import Provider
from tests.support.server import API, Server


@pytest.fixture
def place(tmp_path: Path, models: Path) -> Iterator[tuple[Server, Provider]]:
    """A server and its provider, whose users of the group physics it admits."""
    provider = Provider(tmp_path)
    settings = {"oidc_issuer": provider.issuer, "oidc_client_id": "headscope", "oidc_groups": ["physics"]}
    server = Server(tmp_path / "home", models, **settings)
    try:
        server.start(ready=401)
        provider.start(f"http://{server.url}/")
        yield server, provider
    finally:
        provider.kill()
        server.kill()


def sheet(visit: Visit, name: str = "Sign in") -> Locator:
    """The sheet of that title."""
    return visit.page.get_by_role("dialog", name=name)


def begin(visit: Visit, name: str) -> None:
    """Leave for the provider, and sign in there."""
    sheet(visit).get_by_role("button", name=re.compile("^Sign in with localhost")).click()
    visit.page.get_by_placeholder("Enter any login").fill(name)
    visit.page.get_by_placeholder("and password").fill("x")
    visit.page.get_by_role("button", name="Sign-in").click()


@pytest.mark.long
def test_in_and_out(place: tuple[Server, Provider], visits: Callable[..., Visit]) -> None:
    """The reader comes back to what was open, sees own analyses only, and leaves nothing behind; a refusal gives its reason."""
    server, _ = place
    visit = visits(f"http://{server.url}")
    visit.network_errors_expected = True
    visit.page.goto(f"{visit.root}/{address(text='Rain fell on the roof.', head='1.0')}")
    expect(sheet(visit).get_by_role("button", name=re.compile("^Sign in with"))).to_be_focused()
    check(visit, narrow=False)
    begin(visit, "eve.chemistry")
    expect(sheet(visit).get_by_role("alert")).to_contain_text("has no access to this server")
    expect(visit.page).to_have_url(re.compile(r"#.*Rain"))
    visit.context.clear_cookies()

    begin(visit, "ada.physics")
    visit.painted("head")
    expect(visit.image("Heat map of head 1.0")).to_be_visible()
    expect(visit.page).to_have_url(re.compile(r"/#[^?]*Rain"))
    kept = "[document.cookie, JSON.stringify(localStorage), JSON.stringify(sessionStorage), location.href].join()"
    assert not re.search("session|code=|state=", visit.page.evaluate(kept))
    visit.page.reload()
    visit.painted("head")
    items = visit.page.evaluate(f"fetch('{API}/analyses').then((answer) => answer.json())")["items"]
    assert [item["text"] for item in items] == ["Rain fell on the roof."]
    visit.page.get_by_role("banner").get_by_role("button", name="Signed in as ada").click()
    sheet(visit, "Signed in as ada").get_by_role("button", name="Sign out").click()
    expect(sheet(visit)).to_be_visible()
    expect(visit.page.get_by_text("Rain")).to_have_count(0)
    assert not [cookie for cookie in visit.context.cookies() if cookie["domain"] == "127.0.0.1"]
