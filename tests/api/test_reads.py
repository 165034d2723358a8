"""A question asked again is answered as it was the first time, for as long as that is still true, and to nobody who may not ask it."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from starlette.responses import Response

from headscope.api.access import Visitor
from headscope.api.again import MOST, Again, Question
from tests.api.users import Users, refused
from tests.cluster import Cluster, both_homes
from tests.server import API, Server

BODY = {"model": "bert", "lenses": ["weights"], "measures": ["entropy"]}
PATHS = ["", "/maps/weights?layer=0", "/maps/weights?layer=0&format=json", "/grid/weights", "/measures/entropy", "/edges/weights?layer=0&head=0"]  # fmt: skip
LOCAL = Visitor("local", everything=True)


def shown(answer: httpx.Response) -> tuple[Any, ...]:
    """All that an answer says, but for what names the request."""
    headers = {name: value for name, value in answer.headers.items() if name not in ("date", "x-request-id")}
    return answer.status_code, headers, answer.content


def test_a_long_document_travels_compressed(embedded: Server) -> None:
    """To whoever takes it so, the first time and again; to others as it is."""
    id_ = embedded.analyse(**BODY, text="The cat sat on the mat because it was tired. " * 20)["id"]
    plain, zipped = ({"Accept-Encoding": coding} for coding in ("identity", "gzip"))
    told = [embedded.get(f"/analyses/{id_}", headers=headers) for headers in (zipped, plain) * 2]
    assert [answer.headers.get("content-encoding") for answer in told] == ["gzip", None] * 2
    assert len({answer.content for answer in told}) == 1
    assert 5 * int(told[0].headers["content-length"]) < len(told[1].content)


@both_homes
@pytest.mark.parametrize("path", PATHS)
def test_the_second_answer_is_the_first(server: Server, path: str) -> None:
    """To the byte, with all headers and an id of its own; and it is counted as the first was."""
    address = f"/analyses/{server.analyse(**BODY, text='Asked again.')['id']}{path}"
    first, second, third = (server.get(address) for _ in range(3))
    assert first.status_code == 200
    assert shown(second)[:2] == shown(third)[:2] == shown(first)[:2]
    if "safetensors" not in first.headers["content-type"]:  # which puts names into any order
        assert second.content == third.content == first.content
    assert len({answer.headers["x-request-id"] for answer in (first, second, third)}) == 3
    if path:
        had = {"If-None-Match": first.headers["etag"]}
        told = [server.get(address, headers=had) for _ in range(3)]
        assert [answer.status_code for answer in told] == [304] * 3
        assert shown(told[0]) == shown(told[1]) == shown(told[2])
    assert [server.client.head(f"{API}{address}").status_code for _ in range(2)] == [405] * 2


def test_every_server_knows_at_once_what_is_gone(cluster: Cluster) -> None:
    """Whatever one server has answered before: forgotten at another one, it is gone at both."""
    id_ = cluster.analyse(**BODY, text="Forgotten elsewhere.")["id"]
    one, other = cluster.servers
    for path in PATHS:
        assert {one.get(f"/analyses/{id_}{path}").status_code for _ in range(3)} == {200}
    assert other.client.delete(f"{API}/analyses/{id_}").status_code == 204
    assert {one.get(f"/analyses/{id_}{path}").status_code for path in PATHS for _ in range(2)} == {404}


@pytest.mark.parametrize("path", PATHS)
def test_what_one_user_asks_again_stays_theirs(lab: Users, path: str) -> None:
    """Somebody else gets no answer that was given before, a share key opens it until it is taken back, and a lost grant ends it."""
    id_ = lab.submit(lab.ada, f"Ada asks again for {path}.")
    address, share = f"{API}/analyses/{id_}{path}", f"{API}/analyses/{id_}/share"
    with_key = f"{address}{'&' if '?' in path else '?'}share={lab.ada.post(share).json()['key']}"
    assert {lab.ada.get(address).status_code for _ in range(3)} == {200}
    assert {lab.emmy.get(address).status_code for _ in range(3)} == {404}
    refused(lab.nobody.get(address))
    assert {who.get(with_key).status_code for who in (lab.nobody, lab.emmy) for _ in range(3)} == {200}
    assert lab.ada.delete(share).status_code == 204
    refused(lab.nobody.get(with_key))
    assert lab.emmy.get(with_key).status_code == 404
    assert lab.ada.delete(f"{API}/analyses/{id_}").status_code == 204
    assert {lab.ada.get(address).status_code for _ in range(2)} == {404}


def test_questions_asked_again_are_counted_and_logged(tmp_path: Path, models: Path) -> None:
    """Under the route that answered them first."""
    with Server(tmp_path / "home", models, log_format="json", log_level="debug") as server:
        path = f"/analyses/{server.analyse(**BODY, text='Counted.')['id']}/grid/weights"
        for number in range(3):
            server.get(path, headers={"X-Request-ID": f"again-{number}"})
        metrics = server.client.get("/metrics").text
        route = 'route="/api/v1/analyses/{id}/grid/{lens}"'
        assert f"headscope_http_request_seconds_count{{{route}}} 3.0" in metrics
        lines = [line for line in server.log().splitlines() if '"again-' in line]
        assert len(lines) == 3
        assert all('"route": "/api/v1/analyses/{id}/grid/{lens}"' in line for line in lines)


class Asked:
    """The middleware alone, before a route whose answers are numbered and wait until they may be given."""

    def __init__(self) -> None:
        self.given, self.routed, self.begun, self.open = 0, 0, threading.Event(), threading.Event()
        self.again = Again(self._route, record=SimpleNamespace())

    def answer(self) -> Response:
        self.given += 1
        mine = str(self.given)
        self.begun.set()
        self.open.wait(30)
        return Response(mine)

    async def _route(self, scope: Any, receive: Any, send: Any) -> None:
        self.routed += 1
        scope["headscope.again"] = Question("a" * 32, self.answer, None)
        await Response("routed")(scope, receive, send)

    async def ask(self, path: str = "/x", visitor: Visitor = LOCAL) -> str:
        """One GET; the body of its answer."""
        said: list[Any] = []

        async def send(message: Any) -> None:
            said.append(message)

        scope = {"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": [], "visitor": visitor}
        await self.again(scope, None, send)
        return b"".join(message.get("body", b"") for message in said).decode()


def test_those_who_wait_share_the_answer_that_is_begun_next() -> None:
    """Nobody gets one that was begun before they asked; users share nothing with each other."""

    async def asked() -> None:
        one = Asked()
        assert await one.ask() == "routed"
        first = asyncio.create_task(one.ask())
        assert await asyncio.to_thread(one.begun.wait, 30)
        later = [asyncio.create_task(one.ask()) for _ in range(50)]
        leaves = asyncio.create_task(one.ask())
        await asyncio.sleep(0)
        leaves.cancel()
        one.open.set()
        assert await first == "1"
        assert set(await asyncio.gather(*later)) == {"2"}
        other = Visitor("emmy", shared="a" * 32)
        assert await one.ask(visitor=other) == "routed"
        assert set(await asyncio.gather(one.ask(), one.ask(visitor=other))) == {"3", "4"}
        assert (one.given, one.routed) == (4, 2)
        assert not one.again._begun
        assert not one.again._next

    asyncio.run(asked())


def test_questions_are_bounded() -> None:
    """Those that were asked for the first time longest ago are forgotten, long ones are never kept."""

    async def asked() -> None:
        one = Asked()
        one.open.set()
        for number in range(MOST + 1):
            await one.ask(f"/{number}")
        assert len(one.again._questions) == MOST
        assert await one.ask("/0") == "routed"
        assert await one.ask(f"/{MOST}") == "1"
        for _ in range(2):
            assert await one.ask("/" + "x" * 1000) == "routed"

    asyncio.run(asked())
