"""Signing in on the page: the cookie is out of reach of scripts and other sites, and is deleted on signing out."""

from __future__ import annotations

from collections.abc import Iterator
from http.cookies import Morsel, SimpleCookie

import httpx
import pytest

from tests.api.test_bad_input import check_problem
from tests.api.users import Users, refused
from tests.support.server import API, Server

SESSION = f"{API}/session"


@pytest.fixture
def browser(lab: Users) -> Iterator[httpx.Client]:
    """A client that keeps cookies and has no token yet."""
    with lab.server.visitor() as client:
        yield client


def sign_in(client: httpx.Client, token: str, **headers: str) -> httpx.Response:
    """Send what the page sends."""
    return client.post(SESSION, json={"token": token}, headers=headers)


def cookie(answer: httpx.Response) -> Morsel[str]:
    """Return the single cookie that a response sets."""
    (found,) = SimpleCookie(answer.headers["set-cookie"]).values()
    return found


def test_in_and_out(lab: Users, browser: httpx.Client) -> None:
    """The cookie replaces the token on every route, event streams included, until it is deleted."""
    refused(browser.get(SESSION))
    answer = sign_in(browser, lab.tokens["ada"])
    assert (answer.status_code, answer.json()) == (200, {"user": "ada", "home": "embedded"})
    assert browser.get(SESSION).json() == {"user": "ada", "home": "embedded"}
    id_ = lab.submit(browser, "A page asks.")
    assert lab.ada.get(f"{API}/analyses/{id_}").status_code == 200
    with browser.stream("GET", f"{API}/analyses/{id_}/events") as stream:
        assert "done" in stream.read().decode()
    assert browser.delete(SESSION).status_code == 204
    refused(browser.get(SESSION))
    assert lab.ada.get(SESSION).json() == {"user": "ada", "home": "embedded"}


def test_the_cookie(lab: Users, browser: httpx.Client) -> None:
    """The cookie is not for scripts or other sites, restricted to the API, and named after this server's port."""
    found = cookie(sign_in(browser, lab.tokens["ada"]))
    assert found.key == f"headscope-{lab.server.url.split(':')[1]}"
    assert (found["httponly"], found["samesite"].lower(), found["path"], found["domain"]) == (True, "strict", API, "")
    assert 24 * 3600 <= int(found["max-age"]) <= 90 * 24 * 3600
    assert not found["secure"]


def test_the_cookie_of_a_page_behind_a_proxy_with_tls(lab: Users, browser: httpx.Client) -> None:
    """A cookie set over HTTPS is never sent over plain HTTP."""
    assert cookie(sign_in(browser, lab.tokens["ada"], Origin=f"https://{lab.server.url}"))["secure"]
    assert not cookie(sign_in(browser, lab.tokens["ada"], Origin=f"http://{lab.server.url}"))["secure"]


@pytest.mark.parametrize("token", ["x", "x" * 43, "ada", "x" * 200, "\u00e9", "headscope"])
def test_a_wrong_token(browser: httpx.Client, token: str) -> None:
    """401 after a delay, no cookie, and no echo."""
    answer = sign_in(browser, token)
    refused(answer)
    assert answer.elapsed.total_seconds() >= 0.3
    assert "set-cookie" not in answer.headers
    assert "x" * 43 not in answer.text


@pytest.mark.parametrize(
    "body",
    [
        "",
        "[]",
        "{}",
        '{"token": 5}',
        '{"token": ""}',
        '{"token": null}',
        '{"token": "x", "user": "ada"}',
        '{"token": "\\ud800"}',
        "x",
    ],
)
def test_a_bad_body(browser: httpx.Client, body: str) -> None:
    """An invalid body is rejected."""
    answer = browser.post(SESSION, content=body.encode(), headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 401, 415, 422)
    check_problem(answer)


@pytest.mark.parametrize(
    "headers", [{"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Origin": "null"}], ids=str
)
def test_another_site_cannot_sign_in_or_out(lab: Users, browser: httpx.Client, headers: dict[str, str]) -> None:
    """Another site can sign a browser neither in nor out."""
    assert sign_in(browser, lab.tokens["emmy"], **headers).status_code == 403
    sign_in(browser, lab.tokens["ada"])
    assert browser.delete(SESSION, headers=headers).status_code == 403
    assert browser.get(SESSION).json() == {"user": "ada", "home": "embedded"}


def test_a_header_goes_before_the_cookie(lab: Users, browser: httpx.Client) -> None:
    """A token in the header takes precedence over the cookie, even if it is invalid."""
    sign_in(browser, lab.tokens["ada"])
    emmy = {"Authorization": f"bearer  {lab.tokens['emmy']}"}
    assert browser.get(SESSION, headers=emmy).json() == {"user": "emmy", "home": "embedded"}
    refused(browser.get(SESSION, headers={"Authorization": "Bearer wrong"}))
    refused(browser.get(SESSION, headers={"Authorization": "Basic YWRhOg=="}))


def test_a_revoked_token_ends_its_sessions(lab: Users, browser: httpx.Client) -> None:
    """A revoked token ends all its sessions at once."""
    assert sign_in(browser, lab.server.create_user("grace")).json() == {"user": "grace", "home": "embedded"}
    lab.server.revoke_user("grace")
    refused(browser.get(SESSION))


def test_what_a_browser_keeps_is_for_that_user_only(lab: Users) -> None:
    """Responses that depend on the user have a Vary header, so that browsers do not reuse them for the next user."""
    answer = lab.ada.get(f"{API}/analyses")
    assert {"authorization", "cookie"} <= {name.strip().lower() for name in answer.headers["vary"].split(",")}


def test_a_server_without_users(server: Server) -> None:
    """On a server without users there is no user, and no cookie is set."""
    assert server.get("/session").json() == {"user": None, "home": "embedded"}
    answer = server.post({"token": "anything"}, "/session")
    assert (answer.status_code, answer.json()) == (200, {"user": None, "home": "embedded"})
    assert "set-cookie" not in answer.headers
