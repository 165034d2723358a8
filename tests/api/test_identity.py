"""Signing in with an identity provider: the real flow with a real provider, and attacks on it."""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from http.cookies import SimpleCookie
from pathlib import Path
from urllib.parse import parse_qsl, urljoin, urlsplit

import httpx
import pytest

from headscope.server.accounts import open_accounts
from tests.api.test_bad_input import check_problem
from tests.api.users import refused
from tests.support.identity import Provider
from tests.support.server import API, Server, eventually

SESSION, BEGIN, FINISH = f"{API}/session", f"{API}/session/oidc", f"{API}/session/oidc/code"
SECRET = "the-secret-of-the-client"


@dataclass
class Lab:
    """A server and the identity provider of its lab, in which the group physics may use it."""

    server: Server
    provider: Provider

    @property
    def audit(self) -> Path:
        """The file of the audit log."""
        return self.server.home.with_name("audit.jsonl")

    def authorize(self, browser: httpx.Client, name: str) -> dict[str, str]:
        """Begin to sign in and give the provider this name; return what it has added to the address of the page."""
        began = browser.post(BEGIN)
        assert began.status_code == 200, began.text
        with httpx.Client(trust_env=False) as provider:
            answer = provider.get(began.json()["url"])
            while not (location := answer.headers.get("location", "")).startswith(f"http://{self.server.url}/"):
                if location:
                    answer = provider.get(urljoin(str(answer.url), location))
                else:
                    (action,) = re.findall(r'action="([^"]+)" method="post"', answer.text)
                    fields = {"prompt": "login", "login": name, "password": "x"}
                    answer = provider.post(urljoin(self.provider.issuer, action), data=fields)
        added = dict(parse_qsl(urlsplit(location).query))
        assert added["iss"] == self.provider.issuer
        return added

    def sign_in(self, browser: httpx.Client, name: str) -> httpx.Response:
        """Sign in as the page does."""
        return browser.post(FINISH, json=self.authorize(browser, name))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, models: Path) -> Iterator[Lab]:
    """A server and a provider. The server starts while there is no provider, and says so."""
    folder = tmp_path_factory.mktemp("identity")
    provider = Provider(folder)
    settings = {"oidc_issuer": provider.issuer, "oidc_client_id": "headscope", "oidc_client_secret": SECRET}
    server = Server(folder / "home", models, **settings, oidc_groups=["physics"], audit_file=folder / "audit.jsonl")
    try:
        server.start(ready=401)
        with server.visitor() as browser:
            answer = browser.post(BEGIN)
        assert (answer.status_code, answer.json()["code"]) == (503, "provider-unavailable")
        check_problem(answer)
        provider.start(f"http://{server.url}/", SECRET)
        with server.visitor() as browser:
            eventually(lambda: browser.post(BEGIN).status_code == 200, "another look for the provider")
        yield Lab(server, provider)
        assert SECRET not in server.log()
    finally:
        provider.kill()
        server.kill()


@pytest.fixture
def browser(place: Lab) -> Iterator[httpx.Client]:
    """A client that keeps cookies and has no token."""
    with place.server.visitor() as client:
        yield client


def rejected(answer: httpx.Response, words: str) -> None:
    """Check that a sign-in was refused by a problem with these words, and began no session."""
    assert (answer.status_code, answer.json()["code"]) == (403, "sign-in-refused"), answer.text
    assert words in answer.json()["detail"]
    check_problem(answer)
    assert "set-cookie" not in answer.headers


def test_in_and_out(place: Lab, browser: httpx.Client) -> None:
    """A new user needs no token: the session is a cookie that ends on signing out, also for who has copied it."""
    refused(browser.get(SESSION))
    assert browser.get(BEGIN).json() == {"issuer": place.provider.issuer}
    answer = place.sign_in(browser, "ada.physics")
    assert (answer.status_code, answer.json()) == (200, {"user": "ada", "home": "embedded"})
    name = f"headscope-{place.server.url.split(':')[1]}"
    cookies = SimpleCookie()
    for header in answer.headers.get_list("set-cookie"):
        cookies.load(header)
    cookie = cookies[name]
    assert (cookie["httponly"], cookie["samesite"].lower(), cookie["path"]) == (True, "strict", API)
    assert int(cookie["max-age"]) == 12 * 3600
    assert browser.get(SESSION).json() == {"user": "ada", "home": "embedded"}
    assert browser.get(f"{API}/analyses").json()["items"] == []
    assert browser.delete(SESSION).status_code == 204
    refused(browser.get(SESSION))
    refused(browser.get(SESSION, headers={"Cookie": f"{name}={cookie.value}"}))


def test_the_file_of_the_audit_log(place: Lab, browser: httpx.Client) -> None:
    """It has one JSON object per line for who signs in and out, and for who is refused; the log has none of them."""
    answer = place.sign_in(browser, "joan.physics")
    browser.delete(SESSION)
    eventually(lambda: "signed out" in (shown := place.audit.read_text()) and "joan" in shown, "both events")
    events = [json.loads(line) for line in place.audit.read_text().splitlines()]
    joans = [event for event in events if event.get("user") == "joan"]
    assert [event["event"] for event in joans[:2]] == ["signed in with the identity provider", "signed out"]
    assert joans[0].keys() == {"timestamp", "level", "logger", "event", "user", "resource", "status", "request_id"}
    assert joans[0]["request_id"] == answer.headers["x-request-id"]
    assert stat.S_IMODE(place.audit.stat().st_mode) == 0o600
    assert "headscope.audit" not in place.server.log()
    assert not [cookie for cookie in answer.cookies.values() if cookie and cookie in place.audit.read_text()]


def test_secure_behind_a_proxy_with_tls(place: Lab, browser: httpx.Client) -> None:
    """The provider is asked to send the browser back to the origin that it uses, and cookies are for that alone."""
    answer = browser.post(BEGIN, headers={"Origin": f"https://{place.server.url}"})
    assert dict(parse_qsl(urlsplit(answer.json()["url"]).query))["redirect_uri"] == f"https://{place.server.url}/"
    cookie = answer.headers["set-cookie"].lower()
    assert all(part in cookie for part in ("secure", "httponly", "samesite=strict", f"path={BEGIN}"))


def test_a_user_who_is_revoked(place: Lab, browser: httpx.Client) -> None:
    """All sessions end at once, and signing in again is refused until there is a new token."""
    assert place.sign_in(browser, "mary.physics").status_code == 200
    place.server.revoke_user("mary")
    refused(browser.get(SESSION))
    rejected(place.sign_in(browser, "mary.physics"), "has been revoked")
    with place.server.visitor(place.server.create_user("mary")) as script:
        assert script.get(SESSION).json()["user"] == "mary"
    assert place.sign_in(browser, "mary.physics").json()["user"] == "mary"


def test_the_name_of_another_user(place: Lab, browser: httpx.Client) -> None:
    """The name of a user with a token is not given to a user of the provider, unless the administrator hands it over."""
    place.server.create_user("emmy")
    rejected(place.sign_in(browser, "emmy.physics"), "belongs to another user")
    place.server.revoke_user("emmy")
    rejected(place.sign_in(browser, "emmy.physics"), "belongs to another user")
    rejected(place.sign_in(browser, "local.physics"), "belongs to another user")
    with open_accounts(place.server.settings) as accounts:
        accounts.revoke("emmy", hand_over=True)
    assert place.sign_in(browser, "emmy.physics").json()["user"] == "emmy"


def test_who_may_not(place: Lab, browser: httpx.Client) -> None:
    """A user of another group is refused, and so is one who declines."""
    rejected(place.sign_in(browser, "eve.chemistry"), "no access")
    state = dict(parse_qsl(urlsplit(browser.post(BEGIN).json()["url"]).query))["state"]
    rejected(browser.post(FINISH, json={"state": state}), "did not let you")


def test_attacks_on_the_flow(place: Lab, browser: httpx.Client) -> None:
    """Another state, another browser, another issuer, another origin, and a code that has been used."""
    added = place.authorize(browser, "eve.physics")
    rejected(browser.post(FINISH, json={**added, "state": "x" * 43}), "not started in this browser")
    rejected(browser.post(FINISH, json={**added, "iss": "https://evil.example"}), "for another service")
    with place.server.visitor() as victim:
        rejected(victim.post(FINISH, json=added), "not started in this browser")
        victim.post(BEGIN)
        rejected(victim.post(FINISH, json=added), "not started in this browser")
    for headers in ({"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}):
        assert browser.post(BEGIN, headers=headers).status_code == 403
        answer = browser.post(FINISH, json=added, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (403, "cross-site")
    kept = dict(browser.cookies)
    assert browser.post(FINISH, json=added).json()["user"] == "eve"
    with place.server.visitor() as replay:
        replay.cookies.update(kept)
        rejected(replay.post(FINISH, json=added), "used already")


def test_another_site_uses_no_session(place: Lab, browser: httpx.Client) -> None:
    """Writes with the cookie of a session must come from the page, or from outside a browser."""
    assert place.sign_in(browser, "grace.physics").status_code == 200
    body = {"model": "bert", "text": "A cat."}
    for headers in ({"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}):
        for answer in (
            browser.post(f"{API}/analyses", json=body, headers=headers),
            browser.delete(SESSION, headers=headers),
        ):
            assert (answer.status_code, answer.json()["code"]) == (403, "cross-site")
    assert browser.get(f"{API}/analyses").json()["items"] == []


@pytest.mark.parametrize(
    "body", [{}, {"state": ""}, {"state": 5}, {"state": "x", "code": "x" * 6001}, {"state": "x", "url": "/"}]
)
def test_a_bad_body(browser: httpx.Client, body: dict[str, object]) -> None:
    answer = browser.post(FINISH, json=body)
    assert answer.status_code == 422
    check_problem(answer)


def test_without_a_provider(server: Server) -> None:
    """There is nothing to sign in with."""
    assert server.client.get(BEGIN).json() == {"issuer": None}
    for path, body in ((BEGIN, None), (FINISH, {"state": "x", "code": "x"})):
        answer = server.client.post(path, json=body)
        assert (answer.status_code, answer.json()["code"]) == (404, "not-found")
