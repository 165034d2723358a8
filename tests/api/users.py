"""A server with two users, and every route it has."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.api.test_bad_input import check_problem
from tests.support.server import API, Server

UNKNOWN_ID = "0" * 32
NAMES = {
    "model": "bert", "lens": "weights", "measure": "entropy", "figure": "entropy", "table": "heads", "layer": "0", "head": "0",
    "effect": UNKNOWN_ID,
}  # fmt: skip
QUERY = {
    "/edges/": "?layer=0&head=0",
    "/sums/": "?layer=0&head=0",
    "/ask": "?q=vertical",
    "/datasets": "?name=cats.jsonl",
}
# tests/test_architecture.py compares it with the code; every process that collects tests reads it.
DOCUMENT = json.loads((Path(__file__).parents[2] / "frontend/src/api/openapi.json").read_text("utf-8"))
ROUTES = [(method.upper(), path) for path, methods in DOCUMENT["paths"].items() for method in methods]
OF_ONE = [(method, path) for method, path in ROUTES if "/analyses/{id}" in path]
OF_STUDY = [(method, path) for method, path in ROUTES if "/studies/{id}" in path]
# What reads one analysis, or one study, and so what a share key opens.
READING = [path for method, path in OF_ONE if method == "GET"]
STUDYING = [path for method, path in OF_STUDY if method == "GET"]


@dataclass
class Users:
    """A server and its clients: without a token, and as two users."""

    server: Server
    tokens: dict[str, str]
    anonymous: httpx.Client
    ada: httpx.Client
    emmy: httpx.Client

    def submit(self, who: httpx.Client, text: str, **more: Any) -> str:
        """Submit an analysis, wait until it is done, and return its id."""
        body = {"model": "bert", "text": text, "lenses": ["weights"], "measures": ["entropy"], **more}
        answer = who.post(f"{API}/analyses", json=body, headers={"Prefer": "wait=60"})
        assert answer.status_code == 200, answer.text
        return str(answer.json()["id"])


@contextmanager
def users(home: Path, models: Path, kind: type[Server] = Server, **settings: Any) -> Iterator[Users]:
    """Start a server (or a cluster) with the users Ada and Emmy."""
    with kind(home, models, **settings) as server, users_of(server) as found:
        server.use(found.tokens["ada"])
        yield found


@contextmanager
def users_of(server: Server) -> Iterator[Users]:
    """Create Ada and Emmy on a server that runs."""
    with ExitStack() as stack:
        tokens = {name: server.create_user(name) for name in ("ada", "emmy")}
        anonymous, ada, emmy = (
            stack.enter_context(server.visitor(token)) for token in (None, tokens["ada"], tokens["emmy"])
        )
        yield Users(server, tokens, anonymous, ada, emmy)


def ask(
    who: httpx.Client, method: str, path: str, id_: str = UNKNOWN_ID, other: str | None = None, **more: Any
) -> httpx.Response:
    """Send a valid request to a route, about this analysis or study."""
    filled = path.format(**NAMES, id=id_, other=other or id_)
    filled += next((query for part, query in QUERY.items() if part in path), "")
    body = json.dumps(body_for(path)).encode() if method == "POST" and "{id}" not in path else None
    media = "application/octet-stream" if path.endswith("/datasets") else "application/json"
    headers = {"Content-Type": media, **more.pop("headers", {})} if body else more.pop("headers", {})
    if path.endswith("/events"):
        with who.stream(method, filled, headers=headers, **more) as answer:
            if answer.status_code >= 400:
                answer.read()
            return answer
    return who.request(method, filled, content=body, headers=headers, **more)


def body_for(path: str) -> dict[str, Any]:
    """Return a valid body for a route that accepts one."""
    if path.endswith("/session"):
        return {"token": "x" * 43}
    if path.endswith("/code"):
        return {"state": "x"}
    request = {"model": "bert", "measures": ["entropy"]}
    if path.endswith("/studies"):
        return {**request, "dataset": {"name": "cats.txt", "data": "The cat sat.\n"}}
    return {**request, "inputs": [{"text": "Cat."}]} if path.endswith("/batch") else {**request, "text": "Cat."}


def refused(answer: httpx.Response) -> None:
    """Check that the response is a 401 problem with WWW-Authenticate."""
    assert answer.status_code == 401, (str(answer.url), answer.status_code)
    check_problem(answer)
    assert answer.json()["code"] == "unauthorized"
    assert answer.headers["www-authenticate"] == "Bearer"
