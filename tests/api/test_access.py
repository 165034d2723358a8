"""On a server with users, every request must be authenticated, and users only see their own data."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.routing import iter_route_contexts

from headscope.api.app import create
from headscope.settings import Settings
from tests.api.test_bad_input import check_problem
from tests.api.users import OF_ONE, ROUTES, UNKNOWN_ID, Users, ask, refused, users_of
from tests.support.extent import extent
from tests.support.server import API, SLOW, Server, eventually
from tests.support.variants import variants

OPEN = {
    ("GET", "/healthz"),
    ("GET", "/"),
    ("GET", "/assets/{name}"),
    ("GET", "/assets/plotly.js"),
    ("POST", f"{API}/session"),
    ("GET", f"{API}/session/oidc"),
    ("POST", f"{API}/session/oidc"),
    ("POST", f"{API}/session/oidc/code"),
}
PLACES = [
    *ROUTES,
    ("GET", f"{API}/openapi.json"),
    ("GET", "/nothing"),
    ("POST", "/nothing"),
    ("GET", "/docs"),
    ("OPTIONS", f"{API}/models"),
]
CLOSED = [place for place in PLACES if place not in OPEN]


def test_every_route_is_in_the_matrices(tmp_path: Path) -> None:
    """The application serves exactly the routes in the tables below, including those that the OpenAPI document omits."""
    found = iter_route_contexts(create(Settings(home=tmp_path)).routes)
    served = {(method, str(route.path).replace(":path}", "}")) for route in found for method in route.methods or ()}
    assert {place for place in served if place[0] != "HEAD"} == {*ROUTES, *OPEN, ("GET", f"{API}/openapi.json")}
    assert len(CLOSED) >= 25


@variants("place", CLOSED, ids=" ".join)
def test_nothing_without_a_token(lab: Users, place: tuple[str, str]) -> None:
    """Every route except for the page's files and /healthz requires a token, whether it exists or not."""
    refused(ask(lab.anonymous, *place))


WRONG: dict[str, Any] = {
    "unknown": {"headers": {"Authorization": f"Bearer {'x' * 43}"}},
    "empty": {"headers": {"Authorization": "Bearer"}},
    "another scheme": {"headers": {"Authorization": "Basic {ada}"}},
    "no scheme": {"headers": {"Authorization": "{ada}"}},
    "cut off": {"headers": {"Authorization": "Bearer {ada}"}, "cut": 1},
    "the name": {"headers": {"Authorization": "Bearer ada"}},
    "not ASCII": {"headers": {"Authorization": b"Bearer \xff\xfe"}},
    "in the query": {"params": {"token": "{ada}", "access_token": "{ada}"}},
    "the cookie of another port": {"headers": {"Cookie": "headscope=1; headscope-1={ada}"}},
    "a broken cookie": {"headers": {"Cookie": "headscope=\"{ada}; =;;"}},
    "a user's name": {"headers": {"X-User": "ada", "X-Forwarded-User": "ada", "Remote-User": "ada", "X-Remote-User": "ada"}},
    "a trusted proxy": {"headers": {"X-Forwarded-For": "127.0.0.1", "Forwarded": "for=127.0.0.1", "X-Real-IP": "::1", "X-Forwarded-Proto": "https"}},
    "another address": {"headers": {"X-Original-URL": "/healthz", "X-Rewrite-URL": "/", "X-HTTP-Method-Override": "POST", "X-Forwarded-Prefix": "/assets"}},
}  # fmt: skip


def test_nothing_with_a_wrong_one(lab: Users) -> None:
    """Partial tokens, tokens in the wrong place and headers of proxies are rejected on every route."""
    tokens = lab.tokens

    def filled(sent: dict[str, Any]) -> dict[str, Any]:
        cut = -sent.get("cut", 0) or None
        fill = lambda value: value.format(**tokens)[:cut] if isinstance(value, str) else value  # noqa: E731
        return {kind: {name: fill(value) for name, value in sent[kind].items()} for kind in sent if kind != "cut"}

    with ThreadPoolExecutor(16) as pool:
        for answer in pool.map(
            lambda case: ask(lab.anonymous, *case[0], **filled(case[1])),
            [
                (place, sent)
                for number, place in enumerate(CLOSED)
                for other, sent in enumerate(WRONG.values())
                if (number + other) % extent(1, 4) == 0
            ],
        ):
            refused(answer)


@variants(
    "target",
    ["//api/v1/models", "/api/v1/models/", "/./api/v1/models", "/assets/../api/v1/models", "/assets/%2e%2e/api/v1/models", "/assets/..%2fapi/v1/models",
     "/assets/a/../../api/v1/models", "/healthz/../metrics", "/healthz/", "/healthz;/metrics", "/HEALTHZ", "/metrics?/healthz", "/metrics%3f", "/api/v1/models#/healthz",
     "/%61pi/v1/models", "/api%2fv1/models", "/api/v1/models?path=/healthz", "/assets/x%2f..%2f..%2fmetrics", "/%2e/metrics", "/metrics%00", "/\\metrics",
     "http://evil.example/healthz", "/api/v1/session/", "/api/v1/session/../models", "*"],
)  # fmt: skip
def test_addresses_that_look_open(lab: Users, target: str) -> None:
    """Only the routed path counts: no other spelling exposes a closed route."""
    answer = lab.anonymous.get("/", extensions={"target": target.encode()})
    assert answer.status_code in (400, 401, 404, 421), (target, answer.status_code, answer.text[:100])
    assert "headscope_jobs" not in answer.text
    assert "minilm" not in answer.text


def test_what_is_open(lab: Users) -> None:
    """The page, its files and the liveness probe are public."""
    for path in ("/healthz", "/"):
        assert lab.anonymous.get(path).status_code == 200
    assert lab.anonymous.get("/assets/nothing.js").json()["code"] == "not-found"
    assert lab.anonymous.get("/healthz").json() == {"status": "ok"}


@variants("place", [place for place in ROUTES if place[0] == "GET" and "{id}" not in place[1]], ids=" ".join)
def test_everything_with_a_token(lab: Users, place: tuple[str, str]) -> None:
    """Routes without an owner are open to every user."""
    assert ask(lab.emmy, *place).status_code == 200


def test_an_invalid_token_takes_time_and_delays_no_other_user(lab: Users) -> None:
    """An invalid token is rejected late; users with a valid one do not wait, even during many attempts."""
    guess = {"Authorization": "Bearer wrong"}
    first = lab.anonymous.get(f"{API}/lenses", headers=guess)
    assert first.elapsed.total_seconds() >= 0.3
    with ThreadPoolExecutor(40) as pool:
        guesses = [pool.submit(lab.anonymous.get, f"{API}/lenses", headers=guess) for _ in range(40)]
        assert lab.ada.get(f"{API}/session").json() == {"user": "ada", "home": "embedded"}
        assert {found.result().status_code for found in guesses} == {401}


def test_a_user_who_is_revoked(lab: Users) -> None:
    """Commands take effect at once, without a restart; a new token of the same name has access to the old one's data."""
    first = lab.server.visitor(lab.server.create_user("mary"))
    id_ = lab.submit(first, "Mary looks at a comma.")
    lab.server.revoke_user("mary")
    refused(first.get(f"{API}/analyses/{id_}"))
    second = lab.server.visitor(lab.server.create_user("mary"))
    assert second.get(f"{API}/analyses/{id_}").json()["status"] == "done"
    first.close()
    second.close()


@pytest.fixture(scope="module")
def adas(lab: Users) -> str:
    """An analysis of Ada's."""
    return lab.submit(lab.ada, "Ada sat on the mat.")


def without_id(answer: httpx.Response) -> tuple[int, dict[str, Any], list[str]]:
    """Return everything that a response contains except for its request id."""
    document = answer.json()
    document.pop("request_id")
    return answer.status_code, document, sorted(set(answer.headers) - {"date"})


@variants("route", OF_ONE, ids=" ".join)
def test_another_users_analysis_looks_unknown(lab: Users, adas: str, route: tuple[str, str]) -> None:
    """The response is 404, never 403, with the detail and length of that for an unknown id; nothing else happens."""
    theirs, none = ask(lab.emmy, *route, adas), ask(lab.emmy, *route, UNKNOWN_ID)
    assert without_id(theirs) == without_id(none)
    assert theirs.status_code == 404
    assert theirs.json()["code"] == "unknown-analysis"
    assert theirs.headers["content-length"] == none.headers["content-length"]
    assert lab.ada.get(f"{API}/analyses/{adas}").json()["status"] == "done"


def test_the_other_side_of_a_comparison(lab: Users, adas: str) -> None:
    """An analysis cannot be compared with another user's."""
    own = lab.submit(lab.emmy, "Emmy sat on the mat.")
    route = ("GET", f"{API}/analyses/{{id}}/compare/{{other}}")
    theirs, none = (ask(lab.emmy, *route, own, other) for other in (adas, UNKNOWN_ID))
    assert without_id(theirs) == without_id(none)
    assert theirs.status_code == 404
    assert ask(lab.emmy, *route, own, own).status_code == 200


def test_lists_are_ones_own(lab: Users, adas: str) -> None:
    """Lists contain only the user's own analyses, also from batches and on every page."""
    inputs = [{"text": "One of Emmy's."}, {"text": "Two of Emmy's."}]
    batch = set(lab.emmy.post(f"{API}/analyses/batch", json={"model": "bert", "inputs": inputs}).json()["ids"])
    for id_ in batch:
        eventually(lambda id_=id_: lab.emmy.get(f"{API}/analyses/{id_}").json()["status"] == "done", "the batch")
    emmys = {item["id"] for item in lab.emmy.get(f"{API}/analyses", params={"limit": 200}).json()["items"]}
    assert batch <= emmys
    assert adas not in emmys
    seen, cursor = set(), None
    while cursor or not seen:
        page = lab.ada.get(f"{API}/analyses", params={"limit": 1, **({"cursor": cursor} if cursor else {})}).json()
        seen |= {item["id"] for item in page["items"]}
        cursor = page["next"]
    assert adas in seen
    assert not seen & batch
    refused(lab.anonymous.get(f"{API}/analyses"))


def test_the_same_question_of_two_is_computed_once(lab: Users) -> None:
    """Both users may read it; it is deleted once both have deleted it."""
    before = lab.server.settled("forward_passes_total")
    text = "Two ask the same."
    one, two = lab.submit(lab.ada, text), lab.submit(lab.emmy, text)
    assert one == two
    assert lab.server.metric("forward_passes_total") == before + 1
    address = f"{API}/analyses/{one}"
    assert lab.ada.delete(address).status_code == 204
    assert (lab.ada.get(address).status_code, lab.emmy.get(address).status_code) == (404, 200)
    assert lab.ada.delete(address).status_code == 404
    assert lab.emmy.get(f"{address}/maps/weights").status_code == 200
    assert lab.emmy.delete(address).status_code == 204
    assert {who.get(address).status_code for who in (lab.ada, lab.emmy)} == {404}
    lab.submit(lab.ada, text)
    assert lab.server.metric("forward_passes_total") == before + 2


def test_a_running_analysis_of_two(lab: Users) -> None:
    """Cancelling withdraws one user's request; the job stops once no user wants it."""
    (id_,) = {who.post(f"{API}/analyses", json=SLOW).json()["id"] for who in (lab.ada, lab.emmy)}
    address = f"{API}/analyses/{id_}"
    assert lab.ada.delete(address).status_code == 204
    assert lab.ada.get(address).status_code == 404
    assert lab.emmy.get(address).json()["status"] in ("queued", "running")
    answer = lab.emmy.delete(address)
    assert (answer.status_code, answer.json()["status"]) == (202, "cancelled")


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory, models: Path) -> Iterator[Server]:
    """A server whose users come and go, in the order of the tests below: none yet, some, none left, and none that it can find."""
    with Server(tmp_path_factory.mktemp("own") / "home", models, user_queue=3) as running:
        yield running


def test_the_first_user_closes_a_running_server(own: Server) -> None:
    """Analyses from before the first user belong to the user named local."""
    id_ = own.submit(model="bert", text="Before there were users.")
    first, local = (own.visitor(own.create_user(name)) for name in ("first", "local"))
    refused(own.get("/models"))
    assert first.get(f"{API}/analyses/{id_}").status_code == 404
    assert local.get(f"{API}/analyses/{id_}").status_code == 200
    first.close()
    local.close()


def test_a_user_can_not_fill_the_queue(own: Server) -> None:
    """Beyond the limit, submissions are 429 with Retry-After, a batch as a whole; other users are not affected."""
    with users_of(own) as lab:
        slow = lab.ada.post(f"{API}/analyses", json=SLOW).json()["id"]
        eventually(lambda: lab.ada.get(f"{API}/analyses/{slow}").json()["status"] == "running", "a busy worker")

        def post(who: httpx.Client, text: str) -> httpx.Response:
            return who.post(f"{API}/analyses", json={**SLOW, "text": text})

        assert [post(lab.ada, f"Ada {number}.").status_code for number in range(3)] == [202] * 3
        full = post(lab.ada, "Ada once more.")
        assert (full.status_code, full.json()["code"], full.json()["limit"]) == (429, "queue-full", 3)
        assert int(full.headers["retry-after"]) > 0
        check_problem(full)
        assert post(lab.ada, "Ada 0.").status_code == 202  # waits already
        assert post(lab.emmy, "Emmy.").status_code == 202
        batch = {**SLOW, "inputs": [{"text": f"{number}."} for number in range(3)]}
        batch.pop("text")
        assert lab.emmy.post(f"{API}/analyses/batch", json=batch).status_code == 429
        assert len(lab.emmy.get(f"{API}/analyses").json()["items"]) == 1
        for who in (lab.ada, lab.emmy):
            for item in who.get(f"{API}/analyses").json()["items"]:
                who.delete(f"{API}/analyses/{item['id']}")


def test_the_last_user_opens_nothing(own: Server) -> None:
    """A server whose users are all revoked rejects every request; one that never had any accepts all."""
    token = own.create_user("last")
    with own.visitor(token) as last, own.visitor() as anonymous:
        assert last.get(f"{API}/models").status_code == 200
        for name in ("first", "local", "ada", "emmy", "last"):
            own.revoke_user(name)
        for who in (last, anonymous):
            refused(who.get(f"{API}/models"))


def test_a_damaged_database_opens_nothing(own: Server) -> None:
    """Without a list of its users the server rejects every request, while it runs and after it has started with a new database."""
    token, path = own.create_user("grace"), own.home / "headscope.db"
    path.write_bytes(b"\xff" * path.stat().st_size)
    path.with_name("headscope.db-wal").write_bytes(b"")
    with own.visitor(token) as grace, own.visitor() as anonymous:
        for who in (grace, anonymous):
            answer = who.get(f"{API}/models", headers={"Authorization": f"Bearer {token}"})
            assert (answer.status_code, answer.json()["code"]) == (503, "database-damaged")
            check_problem(answer)
            assert who.get("/healthz").status_code == 200
    own.kill()
    own.start(ready=401)
    refused(own.get("/models"))
    own.use(own.create_user("grace"))
    assert own.get("/models").status_code == 200


def test_the_tokens_of_an_earlier_version_open_nothing(tmp_path: Path, models: Path) -> None:
    """They are not read, and the server says so; every request needs a new one."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "tokens.json").write_text('{"tokens": []}')
    server = Server(home, models)
    try:
        refused(server.start(ready=401).get("/models"))
        assert "tokens.json in HEADSCOPE_HOME is of an earlier version" in server.log()
        server.use(server.create_user("ada"))
        assert server.get("/models").status_code == 200
        assert (home / "tokens.json").exists()
    finally:
        server.kill()
