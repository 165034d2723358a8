"""Host, origin and body checks, and security headers. The cases are generated from the route table, so that no route is missing."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from headscope.api.app import create
from headscope.settings import Settings
from tests.api.test_bad_input import check_problem
from tests.api.users import DOCUMENT
from tests.support.extent import extent
from tests.support.server import Server
from tests.support.variants import variants

ID = "0" * 32
NAMES = {
    "other": "0" * 32, "id": ID, "model": "bert", "lens": "weights", "measure": "entropy", "figure": "entropy", "table": "heads",
    "layer": "0", "head": "0", "effect": "0" * 32,
}  # fmt: skip
ROUTES = [(method.upper(), path.format(**NAMES)) for path, methods in DOCUMENT["paths"].items() for method in methods]
PAGE = [("GET", "/"), ("GET", "/assets/x.js"), ("GET", "/api/v1/openapi.json"), ("GET", "/nothing")]
CHANGES = [(method, path) for method, path in ROUTES if method not in ("GET", "HEAD")]
WRONG_HOSTS = [
    "evil.example", "localhost.evil.example", "127.0.0.1.nip.io", "127.0.0.1.", "localhost.", "127.0.0.2", "0.0.0.0", "2130706433", "0x7f.1",
    "[::]", "[::ffff:127.0.0.1]", "a/?x=", "127.0.0.1/", "127.0.0.1@evil.example", "evil.example:80", "localhost:80:80", "", "127.0.0.1:x",
    "local host", "LOCALHOST.EVIL", "127.1", "localhost,evil.example", "xn--localhost",
]  # fmt: skip
CROSS_SITE = [
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Origin": "http://localhost"},
    {"Origin": "http://127.0.0.1"},
    {"Origin": "http://127.0.0.1:1"},
    {"Origin": "http://{url}.evil.example"},
    {"Origin": "http://evil.example/{url}"},
    {"Origin": "http://[", "Sec-Fetch-Site": "none"},
    {"Origin": "file://"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "anything"},
    {"Sec-Fetch-Site": "cross-site", "Origin": "http://{url}"},
]


def ask(server: Server, method: str, path: str, **headers: str) -> Any:
    """Send a request with these headers and, if needed, a valid body."""
    body = json.dumps({"model": "bert", "text": "The cat sat."}).encode() if method == "POST" else None
    filled = {name.replace("_", "-"): value.format(url=server.url) for name, value in headers.items()}
    media = {"Content-Type": "application/json"} if body else {}
    return server.client.request(method, path, content=body, headers={**media, **filled})


def test_the_route_table_is_not_empty() -> None:
    """The tables below are not empty."""
    assert len(ROUTES) >= 15
    assert {method for method, _ in CHANGES} == {"POST", "DELETE"}


@variants("route", [*ROUTES, *PAGE], ids=lambda route: f"{route[0]} {route[1].replace(ID, 'id')}")
def test_only_our_own_host_names(server: Server, route: tuple[str, str]) -> None:
    """Every route and method responds with 421 to any other Host, so a rebound name reaches nothing."""
    first = [*ROUTES, *PAGE].index(route)
    for host in extent(WRONG_HOSTS, [WRONG_HOSTS[(4 * first + place) % len(WRONG_HOSTS)] for place in range(4)]):
        answer = ask(server, *route, Host=host)
        assert answer.status_code == 421, (host, answer.text[:200])
        check_problem(answer)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]", "LocalHost", "localhost:1234", "127.0.0.1:8000"])
def test_loopback_names_are_ours(server: Server, host: str) -> None:
    """Loopback names are accepted, with any port."""
    assert ask(server, "GET", "/healthz", Host=host).status_code == 200


def test_host_names_can_be_added(models: Path, tmp_path: Path) -> None:
    """HEADSCOPE_ALLOWED_HOSTS adds exactly that name."""
    with Server(tmp_path / "home", models, allowed_hosts=["Lab.example"]) as server:
        assert ask(server, "GET", "/healthz", Host="lab.example:8000").status_code == 200
        assert ask(server, "GET", "/healthz", Host="x.lab.example").status_code == 421


@pytest.mark.parametrize("headers", CROSS_SITE, ids=lambda headers: ",".join(map("=".join, headers.items())))
def test_other_sites_change_nothing(server: Server, headers: dict[str, str], subtests: pytest.Subtests) -> None:
    """Requests with side effects are rejected from another site's page."""
    for route in CHANGES:
        with subtests.test(route=route):
            answer = ask(server, *route, **headers)
            assert (answer.status_code, answer.json()["code"]) == (403, "cross-site")
            check_problem(answer)


@pytest.mark.parametrize(
    "headers", [{}, {"Origin": "http://{url}"}, {"Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "none"}], ids=str
)
def test_our_own_page_may(server: Server, headers: dict[str, str]) -> None:
    """The page itself and clients other than browsers are served."""
    assert ask(server, "POST", "/api/v1/analyses", **headers).status_code in (200, 202)


# Data sets are unparsed files; test_datasets.py covers what they reject.
JSON_BODIES = [path for method, path in CHANGES if method == "POST" and not path.endswith("/datasets")]


@pytest.mark.parametrize(
    "media",
    ["text/plain", "text/plain;application/json", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/json",
     "application/xml", "application/octet-stream", "application/jsonx", "application/json+x", "*/*", ""],
)  # fmt: skip
def test_bodies_are_json(server: Server, media: str, subtests: pytest.Subtests) -> None:
    """What a form could send without a preflight request is 415."""
    for path in JSON_BODIES:
        with subtests.test(path=path):
            answer = ask(server, "POST", path, Content_Type=media)
            assert (answer.status_code, answer.json()["code"]) == (415, "unsupported-media-type")
            check_problem(answer)


@pytest.mark.parametrize("media", ["application/json", "application/json; charset=utf-8", "Application/JSON"])
def test_json_is_json(server: Server, media: str) -> None:
    """JSON is accepted however its media type is spelled."""
    assert ask(server, "POST", "/api/v1/analyses", Content_Type=media).status_code in (200, 202)


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "identity", "x"])
def test_compressed_bodies_are_refused(server: Server, coding: str) -> None:
    """A Content-Encoding is 415, so there are no decompression bombs."""
    assert ask(server, "POST", "/api/v1/analyses", Content_Encoding=coding).status_code == 415


@variants("route", [*ROUTES, *PAGE], ids=lambda route: f"{route[0]} {route[1].replace(ID, 'id')}")
def test_every_answer_says_what_a_browser_may_do(server: Server, route: tuple[str, str]) -> None:
    """Every response has security headers, including errors, and none allows another origin."""
    for headers in (
        {},
        {"Host": "evil.example"},
        {"Origin": "https://evil.example"},
        {"Origin": "null", "Cookie": "a=b"},
    ):
        answer = ask(server, *route, **headers)
        policy = dict(part.strip().partition(" ")[::2] for part in answer.headers["content-security-policy"].split(";"))
        assert policy["default-src"] == policy["script-src"] == "'self'"
        assert policy["object-src"] == policy["base-uri"] == policy["frame-ancestors"] == "'none'"
        assert policy["require-trusted-types-for"] == "'script'"
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        assert answer.headers["cross-origin-opener-policy"] == "same-origin"
        assert not [name for name in answer.headers if name.startswith("access-control-")]
        assert "set-cookie" not in answer.headers
        assert "server" not in answer.headers


def test_a_fault_of_ours_says_it_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """An unexpected exception is a plain problem with the same headers; only the log has its text."""
    app = create(Settings(home=tmp_path, prewarm=False))

    @app.get("/fault")
    async def fault() -> None:
        raise ValueError("a secret")

    with TestClient(app, base_url="http://localhost", raise_server_exceptions=False) as client:
        answer, fine = (client.get(path, headers={"X-Request-ID": "the-fault"}) for path in ("/fault", "/healthz"))
    assert (answer.status_code, answer.headers["content-type"]) == (500, "application/problem+json")
    assert (answer.json()["code"], answer.json()["request_id"]) == ("internal", "the-fault")
    assert "secret" not in answer.text
    for name in ("content-security-policy", "x-content-type-options", "referrer-policy", "cross-origin-opener-policy"):
        assert answer.headers[name] == fine.headers[name]
    assert "a secret" in caplog.text


@variants(
    ("given", "taken"),
    [("abc-123", True), ("a" * 64, True), ("a" * 65, False), ("a b", False), ("<b>", False), ("é", False), ("a_b", False), ("", False)],
)  # fmt: skip
def test_request_ids(server: Server, given: str, taken: bool) -> None:
    """A valid request id is kept; every response has one."""
    answer = server.client.get("/nothing", headers={"X-Request-ID": given.encode()})
    assert (answer.headers["x-request-id"] == given) == taken
    assert answer.json()["request_id"] == answer.headers["x-request-id"]


def test_no_schema_is_open() -> None:
    """No request schema accepts undeclared fields."""
    schemas = DOCUMENT["components"]["schemas"]
    for name in ("AnalysisRequest", "BatchRequest", "BatchInput"):
        assert schemas[name]["additionalProperties"] is False
    wanted = {"AnalysisRequest", "BatchRequest", "BatchInput", "SoftmaxChoice"}
    for name, part in itertools.product(wanted, ("additionalProperties",)):
        assert schemas[name].get(part, True) is False


@variants("method", ["PUT", "PATCH", "DELETE", "POST", "HEAD", "OPTIONS", "TRACE"])
def test_methods_that_do_not_exist(server: Server, method: str) -> None:
    """An unsupported method is 405 as a problem document."""
    answer = server.client.request(method, "/api/v1/lenses")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET")
    if method != "HEAD":
        check_problem(answer)
        assert answer.json()["code"] == "method-not-allowed"
