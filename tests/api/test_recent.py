"""Answers kept in a server's memory are those that belong to the result as it is now."""

from __future__ import annotations

from headscope.api.http.recent import RecentAnswers
from tests.support.cluster import both_deployments
from tests.support.server import API, Server


def test_room_is_bounded_and_the_least_used_goes() -> None:
    """What is asked for stays; what is larger than the room does not stay at all."""
    recent = RecentAnswers(room=10)
    recent.put("a", b"1234", 4)
    recent.put("b", b"1234", 4)
    assert recent.get("a") == b"1234"
    recent.put("c", b"1234", 4)
    assert (recent.get("a"), recent.get("b"), recent.get("c")) == (b"1234", None, b"1234")
    recent.put("a", b"12345", 5)
    assert (recent.get("a"), recent.get("c")) == (b"12345", b"1234")
    recent.put("d", b"x" * 11, 11)
    assert [recent.get(key) for key in "acd"] == [None, None, None]
    recent.put("e", b"1234567890", 10)
    assert recent.get("e") == b"1234567890"


@both_deployments
def test_the_document_is_that_of_the_result(server: Server) -> None:
    """The same bytes each time; gone once the analysis is forgotten; anew once it is computed again."""
    body = {"model": "bert", "text": "Shown, forgotten and shown again."}
    first = server.analyse(**body)
    path = f"/analyses/{first['id']}"
    assert server.get(path).content == server.get(path).content
    assert server.client.delete(f"{API}{path}").status_code == 204
    assert server.get(path).status_code == 404
    again = server.analyse(**body)
    assert {**again, "timing_ms": {}} == {**first, "timing_ms": {}}
    batch = server.post({"model": "bert", "inputs": [{"text": body["text"]}, {"text": "Another."}]}, "/analyses/batch")
    assert batch.status_code == 202
    assert server.get(path).json()["status"] == "done"
    for id_ in batch.json()["ids"]:
        server.ended(id_)
