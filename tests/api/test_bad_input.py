"""Invalid input is never a 5xx: it is rejected with a problem document that echoes nothing, and affects no other request."""

from __future__ import annotations

import json
from typing import Any

import httpx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.api.corpus import CASES, EITHER, GOOD, HOSTILE_TEXTS, MARK, Case
from tests.support.extent import extent
from tests.support.server import Server
from tests.support.variants import variants

MEMBERS = {"type", "title", "status", "detail", "code", "request_id", "errors"}


def check_problem(answer: httpx.Response) -> None:
    """Check a problem document: exactly its members, consistent, without input."""
    assert answer.headers["content-type"] == "application/problem+json", answer.text[:300]
    document = answer.json()
    assert MEMBERS <= set(document) <= MEMBERS | {"limit", "actual"}
    assert document["status"] == answer.status_code
    assert document["type"] == f"/problems/{document['code']}"
    assert document["request_id"] == answer.headers["x-request-id"]
    assert document["title"]
    assert document["detail"].endswith((".", '"'))
    assert all(set(item) == {"pointer", "message"} for item in document["errors"])
    assert len(answer.content) < 4000
    for leak in (MARK, MARK.upper(), "Traceback", "headscope/", ".py", "site-packages", "0x"):
        assert leak not in answer.text


def send(server: Server, case: Case) -> httpx.Response:
    """Send the case unchanged, without a client that normalises the path."""
    as_it_is = {"target": case.path.encode()}
    return server.client.request(case.method, "/", content=case.body or None, headers=case.headers, extensions=as_it_is)


def test_the_corpus_is_large() -> None:
    """The corpus is as large as promised, and names are unique."""
    assert len({case.id for case in CASES}) == len(CASES) >= 300


@variants("case", CASES, ids=lambda case: case.id, short=30)
def test_bad_input(server: Server, case: Case) -> None:
    """Every case is rejected with a problem document, or accepted if valid; the server stays up."""
    answer = send(server, case)
    assert answer.status_code in case.allowed, answer.text[:300]
    if answer.status_code >= 400:
        check_problem(answer)
    else:
        server.ended(answer.json()["id"])
    assert server.post(GOOD).status_code in (200, 202)


@variants("model", ["gpt2", "bert", "llama"], crossed=False)
@variants("text", HOSTILE_TEXTS.values(), ids=HOSTILE_TEXTS)
def test_hostile_text_comes_back_as_it_is(server: Server, model: str, text: str) -> None:
    """Markup and control characters are analysed as text and returned literally."""
    document = server.ended(server.submit(model=model, text=text))
    assert document["status"] == "done", document["error"]
    assert document["text"] == text
    for token in document["tokens"]:
        assert 0 <= token["start"] <= token["end"] <= len(text)
        if token["kind"] != "special" and token["text"] != "[UNK]":
            assert token["text"] == text[token["start"] : token["end"]] or token["start"] == token["end"]


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["bert", "weights"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
FIELDS = ["model", "text", "text_pair", "token_ids", "mechanism", "lenses", "measures", "layers", "heads", "kind", "max_tokens", "dtype", "maps", "inputs"]  # fmt: skip
BODIES = st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=5), JSON_VALUES, max_size=5).map(
    lambda body: {**({"model": "bert", "text": "a"} if len(body) % 2 else {}), **body}
)
RELAXED = settings(derandomize=True, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@settings(RELAXED, max_examples=extent(400, 40))
@given(body=BODIES | JSON_VALUES, path=st.sampled_from(["", "/batch"]))
def test_random_json(server: Server, body: Any, path: str) -> None:
    """No JSON body causes a server error."""
    data = json.dumps(body, ensure_ascii=True).encode()
    answer = server.client.post(f"/api/v1/analyses{path}", content=data, headers={"Content-Type": "application/json"})
    assert answer.status_code in EITHER, answer.text
    if answer.status_code >= 400:
        check_problem(answer)


@settings(RELAXED, max_examples=extent(200, 20))
@given(data=st.binary(max_size=60) | st.text(alphabet='{}[]",:01eE.-\\un \n', max_size=40).map(str.encode))
def test_random_bytes(server: Server, data: bytes) -> None:
    """Random bytes, which are hardly ever JSON, are 4xx."""
    answer = server.client.post("/api/v1/analyses", content=data, headers={"Content-Type": "application/json"})
    assert 400 <= answer.status_code < 500
    check_problem(answer)


QUERIES = [
    "layer",
    "head",
    "query",
    "key",
    "dtype",
    "format",
    "tile",
    "rule",
    "k",
    "mass",
    "value",
    "limit",
    "lens",
    "summary",
    "unit",
]


@settings(RELAXED, max_examples=extent(300, 30))
@given(
    route=st.sampled_from(["maps/weights", "grid/effective", "edges/weights", "measures/entropy", "export"]),
    query=st.dictionaries(
        st.sampled_from(QUERIES), st.text(max_size=6) | st.integers().map(str) | st.just("0"), max_size=4
    ),
)
def test_random_queries(server: Server, route: str, query: dict[str, str]) -> None:
    """Every read of a result returns the result or 4xx."""
    id_ = server.submit(**GOOD)
    if server.get(f"/analyses/{id_}").json()["status"] != "done":
        server.ended(id_)
    clean = {name: value.encode("utf-8", "replace").decode() for name, value in query.items()}
    answer = server.get(f"/analyses/{id_}/{route}", params=clean)
    assert answer.status_code < 500, answer.text
    if answer.status_code >= 400:
        check_problem(answer)


@variants(
    ("body", "pointer", "message"),
    [
        ({"mechanism": 5}, "/mechanism", "This must be a name, or an object with a name."),
        ({"lenses": [5]}, "/lenses/0", "This must be a name, or an object with a name."),
        ({"text": 5}, "/text", "This must be a string."),
        ({"token_ids": {}}, "/token_ids", "This must be a list."),
    ],
    ids=str,
)
def test_what_a_value_should_be(server: Server, body: dict[str, Any], pointer: str, message: str) -> None:
    """A field that may have several types names all of them, once."""
    answer = server.post({"model": "bert", **({} if "token_ids" in body else {"text": "A cat."}), **body})
    assert answer.json()["errors"] == [{"pointer": pointer, "message": message}]


def test_what_a_target_should_be(server: Server) -> None:
    """A token, by text or number, or two: the reason fits the type of the value that was sent."""
    id_ = server.analyse(model="gpt2", text="A target.")["id"]
    for target, message in (
        (10**8, "This number is too large: it must be at most 1000000."),
        ({}, "This must be a string or a whole number or a list."),
    ):
        answer = server.post({"target": target}, f"/analyses/{id_}/effects")
        assert answer.json()["errors"] == [{"pointer": "/target", "message": message}]


@variants(
    ("path", "query", "reason"),
    [
        ("maps/weights", {"layer": "0"}, "This analysis has no such layer. Choose 1."),
        ("maps/weights", {"head": "2"}, "This analysis has no such head. Choose one of 1, 3."),
        ("maps/weights", {"query": "99"}, "This analysis has no such query. Choose one from 0 to "),
        (
            "maps/weights",
            {"layer": "2:0"},
            "The range 2:0 is empty: its end, which is not included, must be above its start.",
        ),
        ("maps/weights", {"groups": "2-1"}, "The range 2-1 ends before its start."),
        ("heads", {"where": "residual_ratio > 0"}, "residual_ratio does not have a number for each head."),
    ],
    ids=str,
)
def test_reasons_are_true(server: Server, path: str, query: dict[str, str], reason: str) -> None:
    """What a refusal says holds for an analysis of some layers and heads."""
    id_ = server.analyse(model="bert", text="A part of the heads.", layers=[1], heads=[1, 3])["id"]
    assert server.get(f"/analyses/{id_}/{path}", params=query).json()["detail"].startswith(reason)
